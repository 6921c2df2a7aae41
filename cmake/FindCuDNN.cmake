# Finds the header and library of cuDNN, in the CUDA toolkit or the system folders; defines CuDNN::cudnn.
find_path(CuDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CuDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
mark_as_advanced(CuDNN_INCLUDE_DIR CuDNN_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CuDNN REQUIRED_VARS CuDNN_LIBRARY CuDNN_INCLUDE_DIR)
if(CuDNN_FOUND AND NOT TARGET CuDNN::cudnn)
  add_library(CuDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CuDNN::cudnn PROPERTIES IMPORTED_LOCATION "${CuDNN_LIBRARY}"
                                               INTERFACE_INCLUDE_DIRECTORIES "${CuDNN_INCLUDE_DIR}")
endif()
