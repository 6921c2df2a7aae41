# The program fuzz: libFuzzer with the targets of tests/fuzz, for scripts/fuzz. It has only the sources that the targets
# need. Those that read bytes from outside are compiled with the sanitizers. The optimizers and exchanges, whose options
# are read, and what they call are only linked: they compile unoptimized and without sanitizers.
set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
set(headers <algorithm> <functional> <map> <memory> <sstream> <string> <vector> <nlohmann/json.hpp>)
set(libraries godwit_threads Highway::hwy Eigen3::Eigen nlohmann_json::nlohmann_json ZLIB::ZLIB JPEG::JPEG ICU::uc)

foreach(folder engine data optim comm autograd)
  godwit_sources(${folder} ${folder})
endforeach()
list(FILTER engine EXCLUDE REGEX "/(gemm|kernel_library|packed_weights)[^/]*$")
list(FILTER data EXCLUDE REGEX
     "/(classification|image_dataset|layout|length_sampler|loader|prefetcher|pretraining|sampler|squad_answers|text_loader|token_(blocks|windows)|pair_trainer|train_bpe|train_wordpiece|transform|word_counts)\\.cpp$")
list(FILTER optim EXCLUDE REGEX "/(checkpoint_.*|saved_parts|ema|spike_guard)\\.cpp$")
set(compress ${comm})
list(FILTER compress INCLUDE REGEX "/compress/")
list(FILTER comm EXCLUDE REGEX "/compress/|/launcher\\.cpp$")
list(FILTER autograd EXCLUDE REGEX "/ops/")

add_library(fuzz_methods OBJECT ${optim} ${comm} ${autograd} nn/module.cpp)
target_link_libraries(fuzz_methods PRIVATE ${libraries})
target_precompile_headers(fuzz_methods PRIVATE ${headers})

file(GLOB targets CONFIGURE_DEPENDS tests/fuzz/*.cpp apps/config/*.cpp)
list(FILTER targets EXCLUDE REGEX "/(corpus_test|print)\\.cpp$")
add_executable(fuzz ${targets} ${engine} ${data} ${compress} apps/report/log_options.cpp comm/transport/launcher.cpp models/bert_config.cpp
               models/config_json.cpp models/gpt2_config.cpp models/llama_config.cpp models/rotary_scaling.cpp
               nn/weights.cpp optim/checkpoint_files.cpp optim/checkpoint_load.cpp optim/checkpoint_options.cpp
               optim/saved_parts.cpp optim/spike_guard.cpp $<TARGET_OBJECTS:fuzz_methods>)
target_link_libraries(fuzz PRIVATE ${libraries})
target_precompile_headers(fuzz PRIVATE ${headers})
target_compile_options(fuzz PRIVATE ${sanitizers} -fsanitize=fuzzer-no-link -O1 -gline-tables-only -fno-omit-frame-pointer)
target_link_options(fuzz PRIVATE ${sanitizers} -fsanitize=fuzzer)
