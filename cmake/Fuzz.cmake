# The program fuzz: libFuzzer with the targets of tests/fuzz, for scripts/fuzz. It contains only the sources of models and
# apps that the targets need.
file(GLOB sources CONFIGURE_DEPENDS tests/fuzz/*.cpp apps/config/*.cpp)
list(FILTER sources EXCLUDE REGEX "/(corpus_test|print)\\.cpp$")
add_executable(fuzz ${sources} apps/report/log_options.cpp models/bert_config.cpp models/config_json.cpp models/gpt2_config.cpp
               models/llama_config.cpp models/rotary_scaling.cpp)
target_link_libraries(fuzz PRIVATE godwit_optim godwit_data_text godwit_source_hash Highway::hwy nlohmann_json::nlohmann_json)
target_precompile_headers(fuzz REUSE_FROM godwit_engine)
# Several sources are compiled as one, as in libraries (Targets.cmake).
if(GODWIT_BATCH GREATER 1)
  set_target_properties(fuzz PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${GODWIT_BATCH})
endif()
target_link_options(fuzz PRIVATE -fsanitize=fuzzer)
# autograd has no reader, and compiles faster without counters of covered code. It keeps -fsanitize=fuzzer-no-link,
# because it reuses the precompiled headers of engine.
target_compile_options(godwit_autograd PRIVATE
  -fno-sanitize-coverage=func,edge,indirect-calls,trace-cmp,inline-8bit-counters,pc-table,stack-depth)
