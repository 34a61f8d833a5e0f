#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace lockstep {

// A folder that is gone at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path file = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
    return file.string();
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A small valid scenario to damage.
inline constexpr std::string_view kScenario = R"({
  "name": "small",
  "what": "a test",
  "world_size": 4,
  "steps": 3,
  "model": {"kind": "linear", "in_features": 3, "out_features": 2},
  "data": {"kind": "randn", "samples": 24, "features": 3, "targets": 2},
  "loss": {"kind": "mse"},
  "optimizer": {"kind": "sgd", "lr": 0.1},
  "lanes": ["replica", "replay"]
})";

// kScenario with `from` replaced by `to`.
inline std::string changed(std::string_view from, std::string_view to) {
  std::string text(kScenario);
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace lockstep
