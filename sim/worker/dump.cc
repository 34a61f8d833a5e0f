#include "sim/worker/dump.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

namespace lockstep {
namespace {

void write_file(const std::string& path, const char* data, size_t bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(data, static_cast<std::streamsize>(bytes));
  file.flush();
  if (!file) fmt::print(stderr, "could not write {}\n", path);
}

}  // namespace

void write_evidence(const std::string& path, const Evidence& evidence) {
  if (path.empty()) return;
  const std::string text = to_json_text(evidence);
  const std::string unfinished = path + ".new";
  write_file(unfinished, text.data(), text.size());
  if (std::rename(unfinished.c_str(), path.c_str()) != 0)
    fmt::print(stderr, "could not write {}\n", path);
}

void dump_states(const std::string& prefix, const MismatchContext& context) {
  if (prefix.empty()) return;
  const std::string base = fmt::format("{}.{}.step-{}", prefix, context.lane, context.step);
  const auto bytes = static_cast<size_t>(context.layout->bytes);
  write_file(base + ".run", reinterpret_cast<const char*>(context.run), bytes);
  write_file(base + ".golden", reinterpret_cast<const char*>(context.golden), bytes);
  std::string index = "kind name dtype numel offset\n";
  for (const StateEntry& entry : context.layout->entries)
    index += fmt::format("{} {} {} {} {}\n", to_word(entry.kind), entry.name, entry.dtype,
                         entry.numel, entry.offset);
  write_file(base + ".index.txt", index.data(), index.size());
}

}  // namespace lockstep
