# Finds the header and library of Highway; defines Highway::hwy and Highway_VERSION.
find_path(Highway_INCLUDE_DIR hwy/highway.h)
find_library(Highway_LIBRARY hwy)
mark_as_advanced(Highway_INCLUDE_DIR Highway_LIBRARY)
unset(Highway_VERSION)
foreach(header base highway) # base.h has the version from 1.3 on
  if(EXISTS "${Highway_INCLUDE_DIR}/hwy/${header}.h")
    file(STRINGS "${Highway_INCLUDE_DIR}/hwy/${header}.h" lines REGEX "^#define HWY_(MAJOR|MINOR|PATCH) ")
    if(lines MATCHES "MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+)")
      set(Highway_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3})
    endif()
  endif()
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Highway REQUIRED_VARS Highway_LIBRARY Highway_INCLUDE_DIR VERSION_VAR Highway_VERSION)
if(Highway_FOUND AND NOT TARGET Highway::hwy)
  add_library(Highway::hwy UNKNOWN IMPORTED)
  set_target_properties(Highway::hwy PROPERTIES IMPORTED_LOCATION "${Highway_LIBRARY}"
                                                INTERFACE_COMPILE_OPTIONS -DHWY_SHARED_DEFINE
                                                INTERFACE_INCLUDE_DIRECTORIES "${Highway_INCLUDE_DIR}")
endif()
