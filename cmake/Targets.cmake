# Each folder is one static library and one test program. Sources are globbed, so a new file needs no line here.

function(godwit_sources folder out)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  if(GODWIT_HAS_ONEDNN)
    list(FILTER sources EXCLUDE REGEX "_portable\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "[_/]onednn\\.cpp$")
  endif()
  if(GODWIT_HAS_MPI)
    list(FILTER sources EXCLUDE REGEX "_nompi\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "_mpi\\.cpp$")
  endif()
  if(GODWIT_HAS_NCCL)
    list(FILTER sources EXCLUDE REGEX "_nonccl\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "_nccl\\.cpp$")
  endif()
  if(GODWIT_HAS_CUDA)
    list(FILTER sources EXCLUDE REGEX "_nocuda\\.cpp$")
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${folder}/*.cu)
    if(GODWIT_CUDA STREQUAL "EMULATED")
      set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
    elseif(folder MATCHES "^(comm|optim)$") # results must equal the CPU's bit for bit
      set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS "--fmad=false")
    endif()
    list(APPEND sources ${kernels})
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/[^/]*\\.cpp$")
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# godwit_library(<folder> [PUBLIC_LIBS …] [PRIVATE_LIBS …] [HEADER_LIBS …] [CXX_OPTIONS …]): the static library of a
# folder. Third-party headers stay private to the folder. HEADER_LIBS are header-only libraries, which an installed
# Godwit does not need. CXX_OPTIONS are compiler options of the folder's C++ sources.
function(godwit_library folder)
  cmake_parse_arguments(ARG "" "" "PUBLIC_LIBS;PRIVATE_LIBS;HEADER_LIBS;CXX_OPTIONS" ${ARGN})
  godwit_sources(${folder} sources)
  list(FILTER sources EXCLUDE REGEX "/apps/[^/]*\\.cpp$") # each of these has a main()
  add_library(godwit_${folder} STATIC ${sources})
  target_include_directories(godwit_${folder} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(godwit_${folder} PUBLIC ${ARG_PUBLIC_LIBS} PRIVATE ${ARG_PRIVATE_LIBS})
  foreach(lib ${ARG_HEADER_LIBS})
    target_link_libraries(godwit_${folder} PRIVATE $<BUILD_INTERFACE:${lib}>)
  endforeach()
  target_compile_options(godwit_${folder} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${ARG_CXX_OPTIONS}>")
  add_library(Godwit::${folder} ALIAS godwit_${folder})
  # The standard headers that most sources include are precompiled: once for the libraries that use Highway, whose macros
  # must be the same, once for the others, and once for a folder with options of its own.
  set(first nn)
  if("Highway::hwy" IN_LIST ARG_PRIVATE_LIBS)
    set(first engine)
  endif()
  if(folder STREQUAL first OR ARG_CXX_OPTIONS)
    set(headers algorithm array atomic cmath cstdint functional map memory mutex optional span sstream string thread
        utility variant vector)
    list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
    target_precompile_headers(godwit_${folder} PRIVATE ${headers})
  else()
    target_precompile_headers(godwit_${folder} REUSE_FROM godwit_${first})
  endif()
endfunction()

function(godwit_app name)
  add_executable(${name} apps/${name}.cpp)
  target_link_libraries(${name} PRIVATE godwit_apps)
endfunction()

# godwit_test_program(<name> <library> <sources>…): a test program that links to one of Godwit's libraries.
function(godwit_test_program name library)
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE godwit_${library} nlohmann_json::nlohmann_json Eigen3::Eigen GTest::gtest)
  target_compile_definitions(${name} PRIVATE GODWIT_SOURCE_DIR="${PROJECT_SOURCE_DIR}" GODWIT_BINARY_DIR="${PROJECT_BINARY_DIR}"
                             GODWIT_SANITIZE="${GODWIT_SANITIZE}")
  # Tests take most of the build time: compile them with -O1, and precompile the largest headers once for all.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(name STREQUAL "engine_tests")
    target_precompile_headers(${name} PRIVATE <gtest/gtest.h> <gmock/gmock.h> <nlohmann/json.hpp> "autograd/var.h")
  else()
    target_precompile_headers(${name} REUSE_FROM engine_tests)
  endif()
endfunction()

# godwit_tests(<folder> <library>): builds the sources in tests/<folder> as the program <folder>_tests, one ctest entry.
function(godwit_tests folder library)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS tests/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/(mpi|preload)/") # programs and libraries of their own
  if(NOT GODWIT_HAS_CUDA) # these call CUDA kernels directly
    list(FILTER sources EXCLUDE REGEX "/cuda_[^/]*kernels_test\\.cpp$")
  endif()
  godwit_test_program(${folder}_tests ${library} ${sources})
  target_link_libraries(${folder}_tests PRIVATE GTest::gtest_main)
  add_test(NAME ${folder} COMMAND ${folder}_tests)
  set_tests_properties(${folder} PROPERTIES TIMEOUT 1200)
endfunction()
