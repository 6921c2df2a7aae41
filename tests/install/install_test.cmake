# Tests the use of Godwit from other projects. Expects SOURCE, BINARY (a complete build) and GENERATOR.
# 1. Configures the tree in a folder whose name CMake cannot use, and with an old Highway, which must fail.
#    Then configures it in a folder whose name has the form of a CMake variable.
# 2. Installs the tree, moves it, builds the programs of examples/ against it with find_package and runs them. Their
#    losses must fall, and their pages (docs/embedding.md, docs/extending.md) must contain them verbatim.
# 3. Compiles all installed headers in one file.
# 4. Configures a project that adds the sources with add_subdirectory, and compiles all headers there too.
cmake_minimum_required(VERSION 3.22)
set(work ${BINARY}/install-test)
file(REMOVE_RECURSE ${work})

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what}: ${status}\n${out}\n${err}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

function(build_against_installed folder)
  run("configure ${folder}" ${CMAKE_COMMAND} -S ${folder} -B ${folder}-build -G ${GENERATOR}
      -D CMAKE_PREFIX_PATH=${work}/prefix -D CMAKE_BUILD_TYPE=Release)
  run("build ${folder}" ${CMAKE_COMMAND} --build ${folder}-build)
endfunction()

execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B "${work}/a#b" -G ${GENERATOR}
                RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE err)
if(status EQUAL 0 OR NOT err MATCHES "a#b: CMake[ \n]+cannot[ \n]+build")
  message(FATAL_ERROR "a folder whose name CMake cannot use is not refused: ${err}")
endif()

file(WRITE ${work}/highway/hwy/highway.h "#define HWY_MAJOR 1\n#define HWY_MINOR 0\n#define HWY_PATCH 2\n")
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${work}/old-highway -G ${GENERATOR}
                -D Highway_INCLUDE_DIR=${work}/highway RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE err)
if(status EQUAL 0 OR NOT err MATCHES "version \"1.0.2\",[ \n]+but[ \n]+required[ \n]+is[ \n]+at[ \n]+least[ \n]+\"1.0.3\"")
  message(FATAL_ERROR "Highway 1.0.2 is not refused: ${err}")
endif()

file(CREATE_LINK ${SOURCE} ${work}/a@work@b SYMBOLIC)
run("configure in a@work@b" ${CMAKE_COMMAND} -S ${work}/a@work@b -B ${work}/at-build -G ${GENERATOR} -D GODWIT_CUDA=EMULATED
    -D GODWIT_APPS=OFF -D GODWIT_TESTS=OFF -D GODWIT_BENCH=OFF -D GODWIT_ONEDNN=OFF -D GODWIT_OPENMP=OFF -D GODWIT_MPI=OFF)
file(READ ${work}/at-build/kernels/engine_0.cu kernels)
if(NOT kernels MATCHES "/a@work@b/engine/")
  message(FATAL_ERROR "sources in a@work@b have other names in the build: ${kernels}")
endif()

run("install" ${CMAKE_COMMAND} --install ${BINARY} --prefix ${work}/first)
file(RENAME ${work}/first ${work}/prefix)

function(check_page page folder)
  file(READ ${SOURCE}/docs/${page} text_of_page)
  foreach(file ${ARGN})
    file(READ ${SOURCE}/examples/${folder}/${file} text)
    string(FIND "${text_of_page}" "${text}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "docs/${page} does not show examples/${folder}/${file} as it is")
    endif()
  endforeach()
endfunction()

# Reads the losses in `output`: the numbers that follow "loss". The first loss must be above 1 (the examples have four
# classes), the last below 0.5.
function(check_losses what)
  string(REGEX MATCHALL "loss [0-9]+\\.[0-9]+" losses "${output}")
  list(LENGTH losses count)
  if(count LESS 2)
    message(FATAL_ERROR "${what} printed ${count} losses")
  endif()
  list(POP_FRONT losses first)
  list(POP_BACK losses last)
  string(REGEX REPLACE ".* " "" first ${first})
  string(REGEX REPLACE ".* " "" last ${last})
  if(NOT first GREATER 1 OR NOT last LESS 0.5)
    message(FATAL_ERROR "${what}: the loss went from ${first} to ${last}; expected above 1 (four classes) and below 0.5")
  endif()
endfunction()

file(COPY ${SOURCE}/examples/embed DESTINATION ${work})
build_against_installed(${work}/embed)
run("run embed" ${CMAKE_COMMAND} -E chdir ${work} ${work}/embed-build/embed)
message("${output}")
check_page(embedding.md embed main.cpp CMakeLists.txt)
check_losses(embed)
if(NOT EXISTS ${work}/net.safetensors)
  message(FATAL_ERROR "embed saved no weights")
endif()

file(COPY ${SOURCE}/examples/extending DESTINATION ${work})
build_against_installed(${work}/extending)
foreach(example optimizer exchange compressor op model dataset)
  run("run ${example}" ${work}/extending-build/${example})
  message("${output}")
  check_page(extending.md extending ${example}.cpp)
  check_losses(${example})
  file(READ ${SOURCE}/examples/extending/${example}.cpp text)
  string(REGEX MATCHALL "\n" ends "${text}")
  list(LENGTH ends count)
  if(count GREATER 60)
    message(FATAL_ERROR "examples/extending/${example}.cpp has ${count} lines; expected at most 60")
  endif()
endforeach()

file(GLOB_RECURSE headers RELATIVE ${work}/prefix/include ${work}/prefix/include/*.h)
list(TRANSFORM headers REPLACE "(.+)" "#include <\\1>")
list(JOIN headers "\n" headers)
file(WRITE ${work}/headers/main.cpp "${headers}
#if __has_include(\"engine/check.h\") || __has_include(\"data/file.h\")
#error a header of Godwit is on the include path without its prefix
#endif
int main() {}
")
file(WRITE ${work}/headers/CMakeLists.txt [[
cmake_minimum_required(VERSION 3.22)
project(Headers LANGUAGES CXX)
find_package(Godwit 0.1 REQUIRED)
add_executable(headers main.cpp)
target_link_libraries(headers PRIVATE Godwit::godwit)
]])
build_against_installed(${work}/headers)

file(WRITE ${work}/host/CMakeLists.txt "
cmake_minimum_required(VERSION 3.22)
project(Host LANGUAGES CXX)
add_subdirectory(\"${SOURCE}\" godwit)
add_executable(host \"${SOURCE}/examples/embed/main.cpp\")
target_link_libraries(host PRIVATE Godwit::godwit)
add_library(headers OBJECT \"${work}/headers/main.cpp\")
target_link_libraries(headers PRIVATE Godwit::godwit)
if(TARGET train_resnet OR TARGET engine_tests)
  message(FATAL_ERROR \"programs and tests of a subproject are built\")
endif()
")
run("configure with a subdirectory" ${CMAKE_COMMAND} -S ${work}/host -B ${work}/host-build -G ${GENERATOR})
run("compile headers with a subdirectory" ${CMAKE_COMMAND} --build ${work}/host-build --target headers)
