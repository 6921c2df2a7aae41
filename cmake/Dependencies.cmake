# Finds the libraries that Godwit needs; scripts/setup installs them from the distribution.
find_package(Threads REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)
find_package(ICU REQUIRED COMPONENTS uc)
find_package(Highway 1.0.3 MODULE REQUIRED) # the first version with Xor3

# Highway compiles every kernel once per instruction set: scalar, SSSE3, SSE4, AVX2, AVX-512. SSSE3 is left out to save
# time: processors with SSSE3 and without SSE4 date from before 2009; they run the scalar kernels.
set(GODWIT_SKIPPED_TARGETS "HWY_SSSE3" CACHE STRING "instruction sets for which Highway does not compile kernels, joined by |; may be empty")
if(GODWIT_SKIPPED_TARGETS)
  target_compile_definitions(Highway::hwy INTERFACE "HWY_DISABLED_TARGETS=(${GODWIT_SKIPPED_TARGETS})")
endif()

# Compiler options of Godwit's own sources. Contraction to fused multiply-add is off, because optimizer and compressor
# state must match bit for bit on every machine. A sqrt() that sets errno would not be vectorized.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-ffp-contract=off;-fno-math-errno>")
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-ffp-contract=off;--expt-relaxed-constexpr>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang") # warns about loops with "omp simd" that it does not vectorize
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-pass-failed>")
endif()
if(GODWIT_WERROR)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Werror>" "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
endif()

# godwit_threads: usage requirements of every user of Godwit: include folders, threads, sanitizers.
add_library(godwit_threads INTERFACE)
target_compile_features(godwit_threads INTERFACE cxx_std_20)
target_link_libraries(godwit_threads INTERFACE Threads::Threads)
# A subproject's headers have the names of an installed Godwit: <godwit/engine/tensor.h>.
set(GODWIT_INCLUDE_DIR ${PROJECT_SOURCE_DIR})
if(NOT PROJECT_IS_TOP_LEVEL)
  set(GODWIT_INCLUDE_DIR ${PROJECT_BINARY_DIR}/include)
  execute_process(COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D OUT=${GODWIT_INCLUDE_DIR}
                  -P ${PROJECT_SOURCE_DIR}/cmake/PublicHeaders.cmake COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB_RECURSE GODWIT_HEADERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/*.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${GODWIT_HEADERS})
endif()
target_include_directories(godwit_threads INTERFACE
  $<BUILD_INTERFACE:${GODWIT_INCLUDE_DIR}> $<INSTALL_INTERFACE:include>)
if(GODWIT_SANITIZE)
  target_compile_options(godwit_threads INTERFACE -fsanitize=${GODWIT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
                         $<$<BOOL:$<TARGET_PROPERTY:GODWIT_TEST>>:-fno-sanitize=undefined>) # see godwit_test_settings
  if(GODWIT_SANITIZE MATCHES "address,undefined") # the address sanitizer finds these too; halves the compile time
    target_compile_options(godwit_threads INTERFACE -fno-sanitize=null,object-size)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # g++'s flow analysis has false positives in instrumented code
    target_compile_options(godwit_threads INTERFACE -Wno-maybe-uninitialized)
  endif()
  target_link_options(godwit_threads INTERFACE -fsanitize=${GODWIT_SANITIZE})
endif()
if(GODWIT_FUZZ) # counters of the code that an input reaches
  target_compile_options(godwit_threads INTERFACE $<$<NOT:$<BOOL:$<TARGET_PROPERTY:GODWIT_TEST>>>:-fsanitize=fuzzer-no-link>)
endif()

if(NOT GODWIT_OPENMP STREQUAL "OFF")
  find_package(OpenMP COMPONENTS CXX)
  if(OpenMP_CXX_FOUND)
    target_link_libraries(godwit_threads INTERFACE OpenMP::OpenMP_CXX)
    target_compile_options(godwit_threads INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fopenmp>>")
  elseif(GODWIT_OPENMP STREQUAL "ON")
    message(FATAL_ERROR "GODWIT_OPENMP=ON, but the compiler does not support OpenMP")
  endif()
endif()
if(NOT OpenMP_CXX_FOUND)
  target_compile_options(godwit_threads INTERFACE -Wno-unknown-pragmas)
endif()

# godwit_onednn: oneDNN, if found. With it the sources *onednn.cpp are built, without it *_portable.cpp.
add_library(godwit_onednn INTERFACE)
set(GODWIT_HAS_ONEDNN OFF)
if(NOT GODWIT_ONEDNN STREQUAL "OFF")
  find_package(OneDNN MODULE)
  if(OneDNN_FOUND)
    set(GODWIT_HAS_ONEDNN ON)
    target_link_libraries(godwit_onednn INTERFACE OneDNN::dnnl)
  elseif(GODWIT_ONEDNN STREQUAL "ON")
    message(FATAL_ERROR "GODWIT_ONEDNN=ON, but oneDNN was not found (Debian: libdnnl-dev)")
  endif()
endif()
if(GODWIT_HAS_ONEDNN)
  message(STATUS "float32 kernels: oneDNN, ${OneDNN_LIBRARY}")
else()
  message(STATUS "float32 kernels: Eigen")
endif()

# godwit_mpi: the transport between processes. With MPI the sources *_mpi.cpp are built, without it *_nompi.cpp.
add_library(godwit_mpi INTERFACE)
set(GODWIT_HAS_MPI OFF)
if(NOT GODWIT_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX ON) # only the C interface is used
  find_package(MPI COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(GODWIT_HAS_MPI ON)
    target_link_libraries(godwit_mpi INTERFACE MPI::MPI_CXX)
  elseif(GODWIT_MPI STREQUAL "ON")
    message(FATAL_ERROR "GODWIT_MPI=ON, but MPI was not found (Debian: libopenmpi-dev)")
  endif()
endif()
if(GODWIT_HAS_MPI)
  message(STATUS "transports: local and MPI ${MPI_CXX_VERSION}")
else()
  message(STATUS "transports: local")
endif()

# godwit_cuda: the CUDA runtime, cuBLASLt and cuDNN. With CUDA the sources *.cu and cuda/*.cpp are built, without it
# *_nocuda.cpp. EMULATED compiles the CUDA sources as C++ against tests/emulated_cuda: kernels run on the CPU, thread by
# thread.
add_library(godwit_cuda INTERFACE)
set(GODWIT_HAS_CUDA OFF)
set(GODWIT_CUDA_AUTO ${GODWIT_CUDA})
if(GODWIT_CUDA_AUTO STREQUAL "AUTO") # without a GPU, do not spend time on nvcc
  file(GLOB gpus /dev/nvidia[0-9]*)
  set(GODWIT_CUDA_AUTO OFF)
  if(gpus)
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      set(GODWIT_CUDA_AUTO ON)
    endif()
  endif()
endif()
if(GODWIT_CUDA_AUTO STREQUAL "EMULATED")
  set(GODWIT_HAS_CUDA ON)
  set(GODWIT_EMULATED_SOURCES cuda_runtime.cpp fibers.cpp streams.cpp races.cpp cublasLt.cpp cudnn.cpp nccl.cpp)
  list(TRANSFORM GODWIT_EMULATED_SOURCES PREPEND tests/emulated_cuda/)
  add_library(godwit_emulated_cuda STATIC ${GODWIT_EMULATED_SOURCES})
  target_include_directories(godwit_emulated_cuda SYSTEM PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/tests/emulated_cuda>)
  target_compile_features(godwit_emulated_cuda PUBLIC cxx_std_20)
  target_compile_options(godwit_emulated_cuda PRIVATE -O3) # its loops take most of the time of these tests
  target_link_libraries(godwit_cuda INTERFACE godwit_emulated_cuda)
  target_link_options(godwit_cuda INTERFACE -fsanitize=undefined) # for emulated kernels (Targets.cmake)
  set(godwit_architectures 86,90) # so that a test can refuse a GPU
  message(STATUS "GPUs: emulated on the CPU, for tests")
elseif(GODWIT_CUDA_AUTO)
  set(GODWIT_HAS_CUDA ON)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPU architectures to compile for")
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared) # one runtime, shared with other libraries that link to it
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake 3.25 does not set it for nvcc
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  endif()
  find_package(CUDAToolkit 12 REQUIRED)
  find_package(CuDNN MODULE REQUIRED)
  target_link_libraries(godwit_cuda INTERFACE CUDA::cudart CUDA::cublasLt CuDNN::cudnn ${CMAKE_DL_LIBS}) # NVTX loads profilers with dlopen
  find_path(NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  mark_as_advanced(NVTX_INCLUDE_DIR)
  if(NOT NVTX_INCLUDE_DIR)
    message(STATUS "GPUs: no NVTX ranges for profilers, nvtx3/nvToolsExt.h is missing")
  endif()
  foreach(architecture ${CMAKE_CUDA_ARCHITECTURES})
    if(architecture MATCHES "^[0-9]+" AND CMAKE_MATCH_0 LESS 80)
      message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES=${architecture}: Godwit needs compute capability 8.0 (Ampere) or newer")
    endif()
  endforeach()
  string(REPLACE ";" "," godwit_architectures "${CMAKE_CUDA_ARCHITECTURES}")
  message(STATUS "GPUs: CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}, ${CuDNN_LIBRARY}")
endif()
if(GODWIT_HAS_CUDA)
  target_compile_definitions(godwit_threads INTERFACE GODWIT_HAS_CUDA)
  set_source_files_properties(engine/cuda/requirements.cpp PROPERTIES
                              COMPILE_DEFINITIONS "GODWIT_CUDA_ARCHITECTURES=\"${godwit_architectures}\"")
else()
  message(STATUS "GPUs: not supported by this build (see GODWIT_CUDA)")
endif()

# godwit_nccl: exchange between GPUs. With NCCL the sources *_nccl.cpp are built, without it *_nonccl.cpp.
add_library(godwit_nccl INTERFACE)
set(GODWIT_HAS_NCCL OFF)
if(GODWIT_CUDA_AUTO STREQUAL "EMULATED")
  set(GODWIT_HAS_NCCL ON)
  target_link_libraries(godwit_nccl INTERFACE godwit_emulated_cuda)
elseif(GODWIT_HAS_CUDA)
  find_package(NCCL MODULE)
  if(NCCL_FOUND)
    set(GODWIT_HAS_NCCL ON)
    target_link_libraries(godwit_nccl INTERFACE NCCL::nccl)
  endif()
endif()
