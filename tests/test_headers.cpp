// Empty: this library only precompiles headers, see cmake/Targets.cmake.
