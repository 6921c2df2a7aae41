# One static library, one test program per folder; sources are globbed, so a new file needs no line here.

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
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# godwit_library(<folder> [PUBLIC_LIBS …] [PRIVATE_LIBS …] [HEADER_LIBS …]): third-party headers stay private to the folder;
# HEADER_LIBS are nothing but headers, which an installed Godwit does without.
function(godwit_library folder)
  cmake_parse_arguments(ARG "" "" "PUBLIC_LIBS;PRIVATE_LIBS;HEADER_LIBS" ${ARGN})
  godwit_sources(${folder} sources)
  list(FILTER sources EXCLUDE REGEX "/apps/[^/]*\\.cpp$") # programs, each with its own main()
  add_library(godwit_${folder} STATIC ${sources})
  target_link_libraries(godwit_${folder} PUBLIC ${ARG_PUBLIC_LIBS} PRIVATE ${ARG_PRIVATE_LIBS})
  foreach(lib ${ARG_HEADER_LIBS})
    target_link_libraries(godwit_${folder} PRIVATE $<BUILD_INTERFACE:${lib}>)
  endforeach()
  add_library(Godwit::${folder} ALIAS godwit_${folder})
endfunction()

function(godwit_app name)
  add_executable(${name} apps/${name}.cpp)
  target_link_libraries(${name} PRIVATE godwit_apps)
endfunction()

# A program that may use the tests' libraries and files, on one of Godwit's libraries.
function(godwit_test_program name library)
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE godwit_${library} nlohmann_json::nlohmann_json Eigen3::Eigen GTest::gtest)
  target_compile_definitions(${name} PRIVATE GODWIT_SOURCE_DIR="${PROJECT_SOURCE_DIR}" GODWIT_BINARY_DIR="${PROJECT_BINARY_DIR}"
                             GODWIT_SANITIZE="${GODWIT_SANITIZE}")
  # Most of the build is the tests: little optimisation of their own code, and the largest headers read once for all.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(name STREQUAL "engine_tests")
    target_precompile_headers(${name} PRIVATE <gtest/gtest.h> <gmock/gmock.h> "autograd/var.h")
  else()
    target_precompile_headers(${name} REUSE_FROM engine_tests)
  endif()
endfunction()

# tests/<folder>/*_test.cpp become the program <folder>_tests, one ctest entry per folder.
function(godwit_tests folder library)
  file(GLOB sources CONFIGURE_DEPENDS tests/${folder}/*.cpp)
  godwit_test_program(${folder}_tests ${library} ${sources})
  target_link_libraries(${folder}_tests PRIVATE GTest::gtest_main)
  add_test(NAME ${folder} COMMAND ${folder}_tests)
  set_tests_properties(${folder} PROPERTIES TIMEOUT 1200)
endfunction()
