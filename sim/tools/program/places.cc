#include "sim/tools/program/places.h"

#include <stdlib.h>

#include <filesystem>
#include <system_error>

namespace lockstep {

namespace fs = std::filesystem;

ProgramScratch::ProgramScratch() {
  std::string pattern = (fs::temp_directory_path() / "lockstep-program-XXXXXX").string();
  if (::mkdtemp(pattern.data()) != nullptr) path = pattern;
}

ProgramScratch::~ProgramScratch() {
  std::error_code ignored;
  if (!path.empty()) fs::remove_all(path, ignored);
}

std::string program_agent_folder() {
  const char* given = ::getenv("LOCKSTEP_PYTHON");
  if (given != nullptr) return std::string(given) + "/lockstep/site";
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place :
       {"../../../python/lockstep/site", "../share/lockstep/python/lockstep/site", "../site"}) {
    const fs::path site = (folder / place).lexically_normal();
    if (fs::exists(site / "sitecustomize.py", error)) return site.string();
  }
  return "";
}

}  // namespace lockstep
