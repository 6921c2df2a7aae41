# Finds the header and library of Highway; defines Highway::hwy.
find_path(Highway_INCLUDE_DIR hwy/highway.h)
find_library(Highway_LIBRARY hwy)
mark_as_advanced(Highway_INCLUDE_DIR Highway_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Highway REQUIRED_VARS Highway_LIBRARY Highway_INCLUDE_DIR)
if(Highway_FOUND AND NOT TARGET Highway::hwy)
  add_library(Highway::hwy UNKNOWN IMPORTED)
  set_target_properties(Highway::hwy PROPERTIES IMPORTED_LOCATION "${Highway_LIBRARY}"
                                                INTERFACE_COMPILE_OPTIONS -DHWY_SHARED_DEFINE
                                                INTERFACE_INCLUDE_DIRECTORIES "${Highway_INCLUDE_DIR}")
endif()
