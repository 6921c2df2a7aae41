# Writes OUT, the source of version() and of source_hash(), which returns a hash of the programs' sources in
# SOURCE/<each of FOLDERS>.
#   cmake -D SOURCE=<Godwit's sources> -D "FOLDERS=engine;…" -D VERSION=<version> -D OUT=<file> -P SourceHash.cmake
set(all "")
foreach(folder ${FOLDERS})
  file(GLOB_RECURSE sources RELATIVE ${SOURCE} ${SOURCE}/${folder}/*.h ${SOURCE}/${folder}/*.cpp ${SOURCE}/${folder}/*.cu)
  list(SORT sources)
  foreach(source ${sources})
    file(SHA256 ${SOURCE}/${source} hash)
    string(APPEND all "${hash} ${source}\n")
  endforeach()
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 12 hash)
file(WRITE ${OUT} "#include \"apps/config/build_identity.h\"\nconst char* godwit::apps::version() { return \"${VERSION}\"; }
const char* godwit::apps::source_hash() { return \"${hash}\"; }\n")
