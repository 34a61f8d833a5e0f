#include "sim/tools/program/places.h"

#include <stdlib.h>

#include <filesystem>
#include <system_error>

namespace lockstep {

namespace fs = std::filesystem;

ProgramScratch::ProgramScratch() {
  std::string pattern =
      fs::absolute(fs::temp_directory_path() / "lockstep-program-XXXXXX").string();
  if (::mkdtemp(pattern.data()) != nullptr) path = pattern;
}

ProgramScratch::~ProgramScratch() {
  std::error_code ignored;
  if (!path.empty()) fs::remove_all(path, ignored);
}

std::string program_agent_folder() {
  const char* given = ::getenv("LOCKSTEP_PYTHON");
  std::error_code error;
  if (given != nullptr) return fs::absolute(given, error).string() + "/lockstep/site";
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place :
       {"../../../python/lockstep/site", "../share/lockstep/python/lockstep/site", "../site"}) {
    const fs::path site = (folder / place).lexically_normal();
    if (fs::exists(site / "sitecustomize.py", error)) return site.string();
  }
  return "";
}

std::string program_python_path(const std::string& agent) {
  const char* path = ::getenv("PYTHONPATH");
  return "PYTHONPATH=" + agent + (path == nullptr ? "" : std::string(":") + path);
}

void check_places(const ProgramScratch& scratch, InputErrors* errors) {
  if (program_agent_folder().empty())
    errors->push_back(
        option_error("the agent's folder python/lockstep is not beside this program"));
  if (scratch.path.empty())
    errors->push_back(option_error("cannot make a folder for temporary files"));
}

}  // namespace lockstep
