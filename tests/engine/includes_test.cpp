// Include rules that a compiler does not check. Folders depend on each other in one direction, and only source files
// include third-party headers.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace godwit {
namespace includes_test {

namespace fs = std::filesystem;

struct Include {
  std::string file, folder, target;  // target: as written, without quotes or brackets
};

const std::vector<std::string> kOrder = {"engine", "autograd", "comm", "nn", "optim", "models", "apps"};

// `comm/group.h` of `#include "comm/group.h"`.
std::optional<std::string> included(const std::string& line) {
  if (!line.starts_with("#include")) return std::nullopt;
  const size_t begin = line.find_first_of("\"<");
  const size_t end = line.find_first_of("\">", begin + 1);
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  return line.substr(begin + 1, end - begin - 1);
}

std::vector<Include> includes() {
  std::vector<Include> found;
  std::vector<std::string> folders = kOrder;
  folders.push_back("data");
  for (const std::string& folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(GODWIT_SOURCE_DIR) / folder)) {
      const std::string ending = entry.path().extension().string();
      if (ending != ".h" && ending != ".cpp" && ending != ".cu") continue;
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);)
        if (const auto target = included(line))
          found.push_back({fs::relative(entry.path(), GODWIT_SOURCE_DIR).string(), folder, *target});
    }
  return found;
}

ptrdiff_t place(const std::string& folder) { return std::find(kOrder.begin(), kOrder.end(), folder) - kOrder.begin(); }

TEST(Includes, PointOneWay) {
  const std::vector<Include> all = includes();
  ASSERT_GT(all.size(), 100u);
  for (const Include& include : all) {
    const std::string target = include.target.substr(0, include.target.find('/'));
    if (target == include.folder) continue;
    const bool is_ours = target == "data" || place(target) < std::ssize(kOrder);
    if (!is_ours) continue;
    const bool allowed = include.folder == "data" ? target == "engine"
                         : target == "data"       ? include.folder == "apps"
                                                  : place(target) < place(include.folder);
    EXPECT_TRUE(allowed) << include.file << " includes " << include.target;
  }
}

// The sub-folders that each sub-folder may include; "" is the folder itself. Other folders may include all of them.
TEST(Includes, SubFoldersPointOneWay) {
  using Names = std::set<std::string>;
  const std::map<std::string, Names> allowed = {
      {"comm", {}},
      {"comm/transport", {"comm"}},
      {"comm/compress/wire", {"comm"}},
      {"comm/compress", {"comm", "comm/compress/wire"}},
      {"comm/buckets", {"comm", "comm/compress", "comm/compress/wire"}},
      {"comm/exchange", {"comm", "comm/compress", "comm/compress/wire", "comm/buckets"}},
      {"optim/kernels", {}},
      {"optim", {"optim/kernels"}},
      {"data", {}},
      {"data/image", {"data"}},
      {"data/text", {"data"}},
      {"autograd", {}},
      {"autograd/ops", {"autograd"}},
      {"autograd/ops/attention", {"autograd", "autograd/ops"}},
      {"autograd/ops/convolution", {"autograd", "autograd/ops"}},
      {"autograd/ops/normalization", {"autograd", "autograd/ops"}},
      {"autograd/ops/pooling", {"autograd", "autograd/ops"}},
      {"apps/report", {}},
      {"apps/config", {"apps/report"}},
      {"apps/train", {"apps/report", "apps/config"}},
      {"apps/image", {"apps/report", "apps/config", "apps/train"}},
      {"apps/text", {"apps/report", "apps/config", "apps/train"}},
      {"apps", {"apps/report", "apps/config", "apps/train", "apps/image", "apps/text"}},
  };
  const auto sub_folder = [](const std::string& file) {  // CUDA kernels belong to the folder above theirs
    fs::path folder = fs::path(file).parent_path();
    return (folder.filename() == "cuda" ? folder.parent_path() : folder).string();
  };
  for (const Include& include : includes()) {
    const std::string from = sub_folder(include.file), to = sub_folder(include.target);
    if (from == to || !to.starts_with(include.folder) || include.folder == "engine") continue;
    if (!allowed.contains(from)) continue;
    EXPECT_TRUE(allowed.at(from).contains(to)) << include.file << " includes " << include.target;
  }
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(GODWIT_SOURCE_DIR) / "comm"))
    if (entry.is_directory() && entry.path().filename() != "cuda") {
      EXPECT_TRUE(allowed.contains(fs::relative(entry.path(), GODWIT_SOURCE_DIR).string()))
          << entry.path() << ": add this folder to this test";
    }
}

TEST(Includes, ThirdPartyHeadersStayInSources) {
  const std::vector<std::string> third_party = {"oneapi",   "dnnl", "Eigen", "hwy",     "cudnn", "nccl",  "mpi",
                                                "nlohmann", "CLI",  "zlib",  "unicode", "cuda",  "cublas"};
  const auto is_third_party = [&](const std::string& target) {
    return std::any_of(third_party.begin(), third_party.end(),
                       [&](const auto& name) { return target.starts_with(name); });
  };
  // Headers that only sources and internal headers may include.
  const auto is_internal = [](const std::string& file) {
    static const std::set<std::string> names = {"engine/onednn.h", "engine/gemm_eigen.h"};
    return names.contains(file) || file.ends_with("-inl.h") || file.ends_with("_mpi.h") ||
           file.find("/cuda/") != std::string::npos;
  };
  const std::vector<Include> all = includes();
  for (const Include& include : all) {
    if (include.file.ends_with(".h") && is_third_party(include.target)) {
      EXPECT_TRUE(is_internal(include.file)) << include.file << " includes " << include.target;
    }
    if (is_internal(include.target)) {
      EXPECT_TRUE(!include.file.ends_with(".h") || is_internal(include.file))
          << include.file << " includes " << include.target;
    }
  }
}

}  // namespace includes_test
}  // namespace godwit
