# The program fuzz: libFuzzer and the targets of tests/fuzz, for scripts/fuzz.
file(GLOB sources CONFIGURE_DEPENDS tests/fuzz/*.cpp)
list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
add_executable(fuzz ${sources})
target_link_libraries(fuzz PRIVATE godwit_apps_text)
target_link_options(fuzz PRIVATE -fsanitize=fuzzer)
