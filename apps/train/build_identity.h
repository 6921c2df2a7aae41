// Identity of this build of the program, which the ranks of a run compare.
#pragma once
#include <string>

namespace godwit::apps {

const char* source_hash();  // of the sources of libraries and programs; cmake/SourceHash.cmake writes its definition
std::string build_identity();  // "sources 4f7c1d2a90be, oneDNN 2.6.3, Open MPI v4.1.4"

}  // namespace godwit::apps
