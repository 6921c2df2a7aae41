# Each folder is one static library and one test program. Sources are globbed, so a new file needs no line here.

# Options of emulated kernels. Undefined behavior ends the program, like a misaligned access on a GPU. The calls for the
# thread sanitizer go to the emulator's race detector instead of the sanitizer's library. The sanitizer's macro would
# exclude the precompiled headers.
set(godwit_emulated_kernel_options
    -O1 -fsanitize=undefined -fno-sanitize=null,object-size,vptr -fno-sanitize-recover=undefined
    -fsanitize=thread --param=tsan-instrument-func-entry-exit=0 -U__SANITIZE_THREAD__)

# Sources that a build with nvcc compiles and an emulated build does not, or compiles differently.
set(godwit_nvcc_sources "\\.cu$|/cuda/|[_/](onednn|portable|mpi|nompi|nccl|nonccl)\\.cpp$")

# Sets `out` to sources that each include GODWIT_BATCH of the given CUDA sources of a folder. CMake's own unity builds
# support CUDA only since version 3.31.
function(godwit_batch_kernels folder out)
  set(batches "")
  while(GODWIT_BATCH GREATER 1 AND ARGN)
    list(SUBLIST ARGN 0 ${GODWIT_BATCH} batch)
    list(REMOVE_ITEM ARGN ${batch})
    list(TRANSFORM batch REPLACE "(.+)" "#include \"\\1\"\n")
    list(JOIN batch "" content)
    list(LENGTH batches index)
    set(file ${PROJECT_BINARY_DIR}/kernels/${folder}_${index}.cu)
    file(CONFIGURE OUTPUT ${file} CONTENT "@content@" @ONLY)
    list(APPEND batches ${file})
  endwhile()
  set(${out} ${batches} ${ARGN} PARENT_SCOPE)
endfunction()

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
    godwit_batch_kernels(${folder} kernels ${kernels})
    if(GODWIT_CUDA STREQUAL "EMULATED")
      set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;${godwit_emulated_kernel_options}")
    elseif(folder MATCHES "^(comm|optim)$") # results must equal the CPU's bit for bit
      set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS "--fmad=false")
    endif()
    list(APPEND sources ${kernels})
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/[^/]*\\.cpp$")
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# godwit_library(<folder> [PUBLIC_LIBS …] [PRIVATE_LIBS …] [HEADER_LIBS …]): the static library of a folder, called
# godwit_data_text for data/text. The folders text/ of data and apps are separate libraries, which train_resnet does not
# need. Third-party headers are private to the folder. HEADER_LIBS are header-only libraries, which an installed Godwit
# does not need.
function(godwit_library folder)
  cmake_parse_arguments(ARG "" "" "PUBLIC_LIBS;PRIVATE_LIBS;HEADER_LIBS" ${ARGN})
  godwit_sources(${folder} sources)
  if(NOT folder MATCHES "/text$")
    list(FILTER sources EXCLUDE REGEX "/text/[^/]*\\.cpp$")
  endif()
  list(FILTER sources EXCLUDE REGEX "/apps/[^/]*\\.cpp$") # each file has a main()
  string(REPLACE "/" "_" name ${folder})
  add_library(godwit_${name} STATIC ${sources})
  target_include_directories(godwit_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(godwit_${name} PUBLIC ${ARG_PUBLIC_LIBS} PRIVATE ${ARG_PRIVATE_LIBS})
  foreach(lib ${ARG_HEADER_LIBS})
    target_link_libraries(godwit_${name} PRIVATE $<BUILD_INTERFACE:${lib}>)
  endforeach()
  add_library(Godwit::${name} ALIAS godwit_${name})
  # These folders have no loops over tensors. -O1 compiles in two thirds of the time of -O3.
  if(folder MATCHES "^(models|apps)" AND CMAKE_CXX_FLAGS_RELEASE MATCHES "-O3")
    target_compile_options(godwit_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  # The standard headers that most sources include are precompiled: once for the libraries that use Highway, whose macros
  # must be the same, and once for the others and the programs.
  set(first nn)
  if("Highway::hwy" IN_LIST ARG_PRIVATE_LIBS)
    set(first engine)
  endif()
  if(folder STREQUAL first)
    set(headers algorithm array atomic cmath cstdint functional map memory mutex optional span sstream string thread
        utility variant vector)
    list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
    target_precompile_headers(godwit_${name} PRIVATE ${headers})
  else()
    target_precompile_headers(godwit_${name} REUSE_FROM godwit_${first})
  endif()
  # Several sources are compiled as one, which halves the time. Two kinds of sources are compiled alone: sources that
  # define macros, for example for Highway, and sources whose objects cuda_build_tests does not take from an emulated
  # build. Names in unnamed namespaces must be unique in a library.
  if(GODWIT_BATCH GREATER 1)
    set_target_properties(godwit_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${GODWIT_BATCH})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # g++ takes the sources for headers, in which unnamed namespaces are errors
      target_compile_options(godwit_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
    endif()
    foreach(source ${sources})
      file(STRINGS ${source} macros REGEX "^#define " LIMIT_COUNT 1)
      if(macros OR source MATCHES "${godwit_nvcc_sources}")
        set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endforeach()
  endif()
endfunction()

# godwit_source_hash(<folders>…): the library godwit_source_hash with version() and source_hash(), a hash of the sources
# in <folders>. After a change of a source, only this library is compiled again.
function(godwit_source_hash)
  foreach(source_folder ${ARGN})
    list(APPEND patterns ${source_folder}/*.h ${source_folder}/*.cpp ${source_folder}/*.cu)
  endforeach()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${patterns})
  set(out ${PROJECT_BINARY_DIR}/source_hash.cpp)
  add_custom_command(OUTPUT ${out} DEPENDS ${sources} ${PROJECT_SOURCE_DIR}/cmake/SourceHash.cmake VERBATIM
                     COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D "FOLDERS=${ARGN}"
                             -D VERSION=${PROJECT_VERSION} -D OUT=${out} -P ${PROJECT_SOURCE_DIR}/cmake/SourceHash.cmake)
  add_library(godwit_source_hash STATIC ${out})
  target_include_directories(godwit_source_hash PUBLIC ${PROJECT_SOURCE_DIR})
endfunction()

function(godwit_app name library)
  add_executable(${name} apps/${name}.cpp)
  target_link_libraries(${name} PRIVATE godwit_${library})
  target_precompile_headers(${name} REUSE_FROM godwit_nn)
endfunction()

# Settings of all test programs, which take most of the build time. Tests are compiled with -Og, the optimization level
# that compiles fastest, and without the undefined-behavior sanitizer, which doubles the time. The sanitizer checks the
# libraries, but not the templates that tests instantiate.
function(godwit_test_settings name library)
  target_link_libraries(${name} PRIVATE godwit_${library} Highway::hwy nlohmann_json::nlohmann_json Eigen3::Eigen GTest::gtest)
  target_compile_definitions(${name} PRIVATE GODWIT_SOURCE_DIR="${PROJECT_SOURCE_DIR}" GODWIT_BINARY_DIR="${PROJECT_BINARY_DIR}"
                             GODWIT_SANITIZE="${GODWIT_SANITIZE}")
  # The folders for shell commands, between apostrophes.
  foreach(folder SOURCE BINARY)
    string(REPLACE "'" "'\\\\''" path "${PROJECT_${folder}_DIR}")
    target_compile_definitions(${name} PRIVATE GODWIT_SHELL_${folder}_DIR="${path}")
  endforeach()
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-Og>)
  set_target_properties(${name} PROPERTIES GODWIT_TEST ON)
endfunction()

# godwit_test_program(<name> <library> <sources>…): a test program that links to one of Godwit's libraries.
function(godwit_test_program name library)
  find_package(GTest REQUIRED)
  # A library without code precompiles the largest headers once, because a target depends on all objects of the target
  # whose headers it reuses. JSON costs each source half a second, for templates that g++ instantiates again. Only programs
  # whose tests mostly read JSON precompile it.
  set(headers test_headers)
  if(name MATCHES "^(models|apps)_tests$")
    set(headers test_headers_json)
  endif()
  if(NOT TARGET ${headers})
    add_library(${headers} STATIC tests/test_headers.cpp)
    godwit_test_settings(${headers} engine)
    target_precompile_headers(${headers} PRIVATE <gtest/gtest.h> <gmock/gmock.h> "autograd/var.h")
    if(headers STREQUAL test_headers_json)
      target_precompile_headers(${headers} PRIVATE <nlohmann/json.hpp>)
    endif()
  endif()
  add_executable(${name} ${ARGN})
  godwit_test_settings(${name} ${library})
  target_precompile_headers(${name} REUSE_FROM ${headers})
  # Several sources are compiled as one, which halves the time. So each source has a namespace named after its file.
  if(GODWIT_BATCH GREATER 1)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${GODWIT_BATCH})
  endif()
endfunction()

# godwit_test_runs(<name> <program> <runs>): ctest entries for a test program: <name>, or <name>_1, <name>_2, …, each of
# which runs a part of the tests. Several programs share the cores, so idle OpenMP threads sleep instead of spinning.
function(godwit_test_runs name program runs)
  foreach(run RANGE 1 ${runs})
    math(EXPR index "${run} - 1")
    set(entry ${name})
    if(runs GREATER 1)
      set(entry ${name}_${run})
    endif()
    add_test(NAME ${entry} COMMAND ${program})
    set_tests_properties(${entry} PROPERTIES TIMEOUT 1200 ENVIRONMENT
      "OMP_WAIT_POLICY=passive;GTEST_TOTAL_SHARDS=${runs};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

# godwit_tests(<folder> <library> [<runs>]): builds the sources in tests/<folder> as the program <folder>_tests.
function(godwit_tests folder library)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS tests/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/(mpi|preload)/[^/]*\\.cpp$") # separate programs and libraries
  list(FILTER sources EXCLUDE REGEX "/cuda_[^/]*test\\.cpp$") # part of cuda_tests
  list(FILTER sources EXCLUDE REGEX "/fuzz/fuzz\\.cpp$") # needs clang
  godwit_test_program(${folder}_tests ${library} ${sources})
  target_link_libraries(${folder}_tests PRIVATE GTest::gtest_main)
  set(runs 1 ${ARGN})
  list(GET runs -1 runs)
  godwit_test_runs(${folder} ${folder}_tests ${runs})
endfunction()

# cuda_races_1 and cuda_races_2: each runs half of some tests of cuda_tests under the emulator's race detectors
# (tests/emulated_cuda/README.md). One runs the work of streams as late as possible; the other runs some work earlier, on
# three multiprocessors. In emulated builds, tests of collectives run with NCCL only.
set(GODWIT_RACE_TESTS
    On/Collectives.*/nccl DeviceRanks.* Streams/CudaNcclGroup.Training* CudaTensor.* CudaGraphs.* CudaScheduler.* CudaTrainer.* CudaOptimizer.* CudaOptimizers.*
    CudaMethods.Clipping* CudaMethods.ShardedTraining* CudaParameterShards.HaveTheNorms* CudaParameterShards.Reads*
    CudaExchange.Dense* CudaExchange.Eight* CudaExchange.TopK* CudaExchange.PowerSgdMatches* CudaExchange.Signs*
    CudaWire.* CudaBatchNorm.* CudaLinear.* CudaLamb.* CudaAttention.IsReproducible CudaDnnTiming.* CudaParity.*
    -CudaDnnTiming.OnlyTheFirst*) # allocates 256 MiB
function(godwit_race_tests)
  set_property(TEST cuda_1 cuda_2 APPEND PROPERTY ENVIRONMENT "GTEST_FILTER=-On/Collectives.*/cpu:On/Collectives.*gpu*")
  list(JOIN GODWIT_RACE_TESTS ":" filter)
  foreach(run 1 2)
    math(EXPR seed "${run} + 2")
    math(EXPR index "${run} - 1")
    math(EXPR multiprocessors "2 * ${run} - 1")
    add_test(NAME cuda_races_${run} COMMAND cuda_tests --gtest_filter=${filter})
    set_tests_properties(cuda_races_${run} PROPERTIES TIMEOUT 1200 ENVIRONMENT
      "GODWIT_EMULATED_STREAMS=${seed};GODWIT_EMULATED_ORDER=${seed};GODWIT_EMULATED_MULTIPROCESSORS=${multiprocessors};GODWIT_POISON=1;GTEST_TOTAL_SHARDS=2;GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

# cuda_build_tests: tests of the CUDA build that need neither a GPU nor a driver, linked to every object of the libraries
# that have CUDA code. GODWIT_HOST_BUILD is the folder of an emulated build, whose objects are linked. Only sources that
# the emulated build does not compile, or compiles against emulated headers, are compiled here.
function(godwit_cuda_build_tests)
  find_package(GTest REQUIRED)
  file(GLOB sources CONFIGURE_DEPENDS tests/cuda_build/*.cpp)
  add_executable(cuda_build_tests EXCLUDE_FROM_ALL ${sources})
  target_compile_definitions(cuda_build_tests PRIVATE GODWIT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(cuda_build_tests PRIVATE GTest::gmock GTest::gtest_main ${CMAKE_DL_LIBS})
  set(folders engine autograd comm nn optim)
  if(NOT GODWIT_HOST_BUILD)
    list(TRANSFORM folders PREPEND godwit_ OUTPUT_VARIABLE libraries)
    list(TRANSFORM libraries REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE archives)
    target_link_libraries(cuda_build_tests PRIVATE -Wl,--whole-archive ${archives} -Wl,--no-whole-archive ${libraries}
                          godwit_cuda)
    add_dependencies(cuda_build_tests ${libraries})
  else()
    set(theirs_only "\\.cu\\.o$|/cuda/|[_/](portable|nompi|nccl|nonccl)\\.cpp\\.o$")
    set(commands ${GODWIT_HOST_BUILD}/compile_commands.json)
    if(NOT EXISTS ${commands})
      message(FATAL_ERROR "no objects in ${GODWIT_HOST_BUILD}; build it first: scripts/build emulated cuda_tests")
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${commands})
    foreach(folder ${folders})
      godwit_sources(${folder} sources)
      list(FILTER sources INCLUDE REGEX "${godwit_nvcc_sources}")
      file(STRINGS ${commands} objects REGEX " -o CMakeFiles/godwit_${folder}\\.dir/[^ ]*\\.o -c ")
      list(TRANSFORM objects REPLACE ".* -o ([^ ]*) -c .*" "${GODWIT_HOST_BUILD}/\\1")
      list(FILTER objects EXCLUDE REGEX "${theirs_only}")
      list(APPEND all ${sources} ${objects})
    endforeach()
    target_sources(cuda_build_tests PRIVATE ${all})
    target_link_libraries(cuda_build_tests PRIVATE godwit_threads godwit_onednn godwit_cuda godwit_mpi godwit_nccl
                          Highway::hwy Eigen3::Eigen nlohmann_json::nlohmann_json)
  endif()
  # Without a driver, the toolkit's libcuda.so is used, in which every call fails: cuDNN proposes engines that are compiled
  # at run time only if the library exists.
  get_filename_component(stubs "${CUDA_cuda_driver_LIBRARY}" DIRECTORY)
  godwit_test_runs(cuda_build cuda_build_tests 2)
  set_tests_properties(cuda_build_1 cuda_build_2 PROPERTIES
                       ENVIRONMENT_MODIFICATION "LD_LIBRARY_PATH=path_list_append:${stubs}")
endfunction()
