// Version and identity of this build of a program. cmake/SourceHash.cmake writes version() and source_hash().
#pragma once
#include <string>

namespace godwit::apps {

const char* version();         // "0.1.0"
const char* source_hash();     // hash of the sources of libraries and programs
std::string build_identity();  // "sources 4f7c1d2a90be, oneDNN 2.6.3, Open MPI v4.1.4"; compared between ranks
// The answer to --version: "train_gpt (Godwit 0.1.0), sources 4f7c1d2a90be, oneDNN 2.6.3, Open MPI v4.1.4, CUDA".
std::string version_line(const std::string& program);

}  // namespace godwit::apps
