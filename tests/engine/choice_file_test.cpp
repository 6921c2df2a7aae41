// Choice files: recorded choices stay valid for all threads and later runs. Corrupt files never cause an error.
#include "engine/choice_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <thread>

#include "tests/support.h"

namespace godwit {
namespace choice_file_test {

using ::testing::HasSubstr;
using Values = std::map<std::string, std::string>;

const char* const kOwner = "GPU X, library 9";
const std::string kHeader = std::string("Choices of Godwit, format 1, ") + kOwner;

Bytes bytes_of(const std::string& text) { return Bytes(text.begin(), text.end()); }

class ChoiceFileTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "cache/choices.txt"; }
  ChoiceFile file(const std::string& owner = kOwner) const { return {path(), owner}; }
  std::string text() const {
    const Bytes bytes = read(path());
    return {bytes.begin(), bytes.end()};
  }

  TempFolder folder_;
};

TEST_F(ChoiceFileTest, LaterRunsFindRecordedChoices) {
  EXPECT_EQ(file().read().values, Values());
  EXPECT_EQ(file().read().damage, "") << "a missing file is no damage";
  EXPECT_EQ(file().record("conv a, 3", "67_k2=4"), "67_k2=4");
  EXPECT_EQ(file().record("conv b", "5"), "5");
  EXPECT_EQ(file().read().values, (Values{{"conv a, 3", "67_k2=4"}, {"conv b", "5"}}));
  EXPECT_EQ(text(), kHeader + "\n67_k2=4\tconv a, 3\n5\tconv b\n");
}

TEST_F(ChoiceFileTest, TheFirstChoiceStaysUnlessItIsUnusable) {
  file().record("a", "1");
  EXPECT_EQ(file().record("a", "2"), "1");
  EXPECT_EQ(file().record("a", "2", "7"), "1") << "another process has replaced the unusable one";
  EXPECT_EQ(file().record("a", "2", "1"), "2");
  EXPECT_EQ(file().read().values, (Values{{"a", "2"}}));
}

TEST_F(ChoiceFileTest, ConcurrentThreadsAgreeAndKeepAllChoices) {
  constexpr int kThreads = 4, kKeys = 25;
  std::vector<std::vector<std::string>> answers(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const ChoiceFile mine = file();
      for (int k = 0; k < kKeys; ++k) {
        answers[t].push_back(mine.record("shared " + std::to_string(k), std::to_string(t)));
        mine.record(detail::concat("own ", t, " ", k), "1");
        EXPECT_EQ(mine.read().damage, "");
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& answer : answers) EXPECT_EQ(answer, answers[0]);
  EXPECT_EQ(std::ssize(file().read().values), kKeys + kThreads * kKeys);
}

TEST_F(ChoiceFileTest, TruncatedFilesKeepTheirCompleteLines) {
  file().record("a", "12");
  file().record("b", "34");
  const std::string whole = text();
  for (size_t length = 0; length < whole.size(); ++length) {
    write(path(), bytes_of(whole.substr(0, length)));
    const Choices left = file().read();
    for (const auto& [key, value] : left.values) EXPECT_EQ(value, key == "a" ? "12" : "34") << length;
    const bool complete = length > 0 && whole[length - 1] == '\n';
    EXPECT_EQ(left.damage.empty(), complete && length > kHeader.size()) << length;
  }
  EXPECT_EQ(file().record("b", "5"), "5") << "the last line was not complete";
  EXPECT_EQ(text(), kHeader + "\n12\ta\n5\tb\n") << "recording repairs the file";
}

TEST_F(ChoiceFileTest, OtherLinesAreIgnored) {
  const std::string bad[] = {
      "", "1", "1\t", "\tkey", "1 2\tkey", "1\tkey\ttwo", "9\ta", std::string("\0\tkey", 5), "1/2\tkey"};
  for (const std::string& line : bad) {
    const Choices found = parse_choices(kHeader + "\n1\ta\n" + line + "\n2\tb\n", kHeader);
    EXPECT_EQ(found.values, (Values{{"a", "1"}, {"b", "2"}})) << line;
    EXPECT_NE(found.damage, "") << line;
  }
  EXPECT_EQ(parse_choices(kHeader + "\n1\ta\n2\tb\n", kHeader).damage, "");
}

TEST_F(ChoiceFileTest, ChoicesOfOtherMachinesAndFormatsAreReplaced) {
  file("GPU Y").record("a", "1");
  EXPECT_EQ(file().read().values, Values());
  EXPECT_THAT(file().read().damage, HasSubstr("expected header"));
  EXPECT_EQ(file().record("a", "2"), "2");
  EXPECT_EQ(file().read().damage, "");
  write(path(), bytes_of("Choices of Godwit, format 2, " + std::string(kOwner) + "\n1\ta\n"));
  EXPECT_EQ(file().read().values, Values());
  write(path(), bytes_of(kHeader + " and more\n1\ta\n"));
  EXPECT_EQ(file().read().values, Values());
}

TEST_F(ChoiceFileTest, FoldersPipesAndLongFilesHaveNoChoices) {
  std::filesystem::create_directories(path() + "/in the way");
  EXPECT_THAT(file().read().damage, HasSubstr("not a regular file"));
  EXPECT_THAT(error_of([&] { file().record("a", "1"); }), HasSubstr(path() + ": cannot be written: "));
  std::filesystem::remove_all(path());
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_THAT(file().read().damage, HasSubstr("not a regular file")) << "does not wait for a writer";
  EXPECT_EQ(file().record("a", "1"), "1");
  write(path(), Bytes((4 << 20) + 1, 'x'));
  EXPECT_THAT(file().read().damage, HasSubstr("longer than 4 MiB"));
  EXPECT_EQ(file().record("a", "2"), "2");
}

TEST_F(ChoiceFileTest, AFolderThatCannotBeWrittenIsAnError) {
  write(folder_ / "cache", {});  // a file
  EXPECT_THAT(error_of([&] { file().record("a", "1"); }), HasSubstr("its folder cannot be created"));
  EXPECT_EQ(file().read().values, Values());
  const ChoiceFile none("", kOwner);
  EXPECT_EQ(none.read().damage, "");
  EXPECT_THAT(error_of([&] { none.record("a", "1"); }), HasSubstr("set GODWIT_CACHE"));
}

TEST_F(ChoiceFileTest, AFullDiskLeavesTheFileAsItWas) {
  file().record("a", "1");
  const std::string before = text();
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{before.size() - 1, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  const std::string error = error_of([&] { file().record("b", "2"); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, HasSubstr("cannot be written"));
  EXPECT_EQ(text(), before);
  EXPECT_FALSE(std::filesystem::exists(path() + ".tmp"));
}

// Sets an environment variable in a scope, or removes it if the value is null.
class Variable {
 public:
  Variable(const char* name, const char* value)
      : name_(name), had_(std::getenv(name)), old_(had_ ? std::getenv(name) : "") {
    if (value) setenv(name, value, 1);
    else unsetenv(name);
  }
  ~Variable() {
    if (had_) setenv(name_, old_.c_str(), 1);
    else unsetenv(name_);
  }

 private:
  const char* name_;
  const bool had_;
  const std::string old_;
};

TEST(CacheFolder, FollowsTheEnvironment) {
  const Variable home("HOME", "/home/x");
  const Variable xdg("XDG_CACHE_HOME", nullptr), own("GODWIT_CACHE", nullptr);
  EXPECT_EQ(cache_folder(), "/home/x/.cache/godwit");
  const Variable xdg_set("XDG_CACHE_HOME", "/var/cache");
  EXPECT_EQ(cache_folder(), "/var/cache/godwit");
  const Variable own_set("GODWIT_CACHE", "runs/cache");
  EXPECT_EQ(cache_folder(), "runs/cache");
  const Variable none[] = {{"HOME", nullptr}, {"XDG_CACHE_HOME", ""}, {"GODWIT_CACHE", ""}};
  EXPECT_EQ(cache_folder(), "");
}

}  // namespace choice_file_test
}  // namespace godwit
