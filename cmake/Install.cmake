# Rules for `cmake --install` and find_package(Godwit): static libraries, headers under include/godwit, programs.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(folders engine autograd comm nn optim models data data_text)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Godwit)

set(libraries godwit godwit_threads godwit_onednn godwit_mpi godwit_cuda godwit_nccl)
foreach(folder ${folders})
  list(APPEND libraries godwit_${folder})
endforeach()
foreach(library ${libraries})
  string(REPLACE "godwit_" "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
endforeach()
install(TARGETS ${libraries} EXPORT Godwit ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT Godwit NAMESPACE Godwit:: FILE GodwitTargets.cmake DESTINATION ${package_dir})
if(GODWIT_APPS)
  install(TARGETS train_resnet train_bert train_lm train_gpt tokenize RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" -D \"SOURCE=${PROJECT_SOURCE_DIR}\"
  -D \"OUT=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/include\" -P \"${PROJECT_SOURCE_DIR}/cmake/PublicHeaders.cmake\"
  COMMAND_ERROR_IS_FATAL ANY)")

# Users of a static library must find the libraries that it links to.
set(GODWIT_FIND_DEPENDENCIES "")
function(needs target package)
  if(TARGET ${target})
    string(APPEND GODWIT_FIND_DEPENDENCIES "find_dependency(${package})\n")
    set(GODWIT_FIND_DEPENDENCIES "${GODWIT_FIND_DEPENDENCIES}" PARENT_SCOPE)
  endif()
endfunction()
needs(Threads::Threads "Threads")
needs(OpenMP::OpenMP_CXX "OpenMP COMPONENTS CXX")
needs(Highway::hwy "Highway MODULE")
needs(OneDNN::dnnl "OneDNN MODULE")
needs(CUDA::cudart "CUDAToolkit")
needs(CuDNN::cudnn "CuDNN MODULE")
needs(NCCL::nccl "NCCL MODULE")
needs(ZLIB::ZLIB "ZLIB")
needs(JPEG::JPEG "JPEG")
needs(ICU::uc "ICU COMPONENTS uc")
needs(MPI::MPI_CXX "MPI COMPONENTS CXX")
configure_package_config_file(cmake/GodwitConfig.cmake.in ${PROJECT_BINARY_DIR}/GodwitConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/GodwitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/GodwitConfig.cmake ${PROJECT_BINARY_DIR}/GodwitConfigVersion.cmake
              cmake/FindHighway.cmake cmake/FindOneDNN.cmake cmake/FindCuDNN.cmake cmake/FindNCCL.cmake DESTINATION ${package_dir})
