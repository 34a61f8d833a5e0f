#include "sim/tools/explain/source_kind.h"

#include <algorithm>
#include <filesystem>

#include "scenarios/profiler/kineto_trace.h"
#include "sim/tools/explain/chakra_trace.h"
#include "sim/tools/explain/log_json.h"

namespace lockstep {
namespace {

// At an end it is a hole's, as of a log that was cut while its writer went on.
bool has_nul_inside(std::string_view text) {
  const size_t begin = text.find_first_not_of('\0');
  if (begin == std::string_view::npos) return false;
  const size_t end = text.find_last_not_of('\0');
  return text.substr(begin, end - begin).find('\0') != std::string_view::npos;
}

}  // namespace

SourceKind kind_of(const std::string& path, std::string_view head) {
  const std::string name = std::filesystem::path(path).filename().string();
  if (name.starts_with("_dump_") || name.find("nccl_trace_rank_") != std::string::npos ||
      name.ends_with(".pickle") || name.ends_with(".pkl"))
    return SourceKind::dump;
  if (!head.empty() && static_cast<uint8_t>(head[0]) == 0x80) return SourceKind::dump;
  const size_t first = head.find_first_not_of(" \t\r\n");
  const bool object = first != std::string_view::npos && head[first] == '{';
  if (is_kineto_head(head)) return SourceKind::trace;
  if (is_chakra_head(head)) return SourceKind::chakra;
  if (object && head.find("\"extraInfo\"") != std::string_view::npos) return SourceKind::error_file;
  // PyTorch sorts the keys: behind many entries, groups come too late for the first bytes.
  for (const char* key : {"\"pg_config\"", "\"collective_seq_id\"", "\"comm_lib_version\""})
    if (object && head.find(key) != std::string_view::npos) return SourceKind::dump;
  const std::string_view begin = head.substr(std::min(first, head.size()));
  if (object && json_record(begin.substr(0, begin.find('\n')))) return SourceKind::log;
  if (name.ends_with(".json") || has_nul_inside(head)) return SourceKind::other;
  return SourceKind::log;
}

}  // namespace lockstep
