#include "sim/launch/left_files.h"

#include <fmt/format.h>

#include <regex>

namespace lockstep {
namespace {

constexpr size_t kNameMax = 100;

}  // namespace

bool is_rank_file(const std::string& name, int64_t rank) {
  static const std::regex kinds(
      R"((records|log|evidence\.json|stack|[a-z0-9_]+\.step-[0-9]+\.(run|golden|index\.txt)))");
  const std::string whose = fmt::format("rank-{}.", rank);
  return name.size() < kNameMax && name.starts_with(whose) &&
         std::regex_match(name.substr(whose.size()), kinds);
}

}  // namespace lockstep
