#include "sim/cli/output_files.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>

#include "scenarios/base/text.h"
#include "sim/report/document.h"
#include "sim/report/terminal.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string whole(const std::string& path) {
  std::error_code error;
  const fs::path found = fs::weakly_canonical(path, error);
  return ((error ? fs::absolute(path, error) : found) / "").parent_path().string();
}

}  // namespace

PathUse path_use(const CLI::Option& option) {
  const std::string& value = option.get_option_text();
  const bool file = value.find("FILE") != std::string::npos;
  const bool folder = value.find("DIR") != std::string::npos;
  const bool named = option.get_positional() && value.empty();
  if (!file && !folder && !named) return PathUse::none;
  if (option.get_group() != "Output" && !option.check_lname("out")) return PathUse::read;
  return file ? PathUse::written : PathUse::folder;
}

bool same_file(const std::string& a, const std::string& b) { return whole(a) == whole(b); }

void check_output(const char* option, const std::string& path, InputErrors* errors) {
  if (path.empty()) return;
  if (const auto why = why_not_writable(path))
    errors->push_back(option_error(fmt::format("{} {}", option, *why)));
}

int write_output(const char* option, const std::string& path, int code,
                 const std::function<std::string()>& text) {
  if (path.empty()) return code;
  try {
    write_atomically(path, text());
    return code;
  } catch (const std::exception& error) {
    print_error(fmt::format("lockstep: error: {} {}\n", option, error.what()));
    return kExitBadInput;
  }
}

}  // namespace lockstep
