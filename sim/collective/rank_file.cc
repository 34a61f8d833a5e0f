#include "sim/collective/rank_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>

#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

void append(const std::string& path, const Json& line) {
  std::ofstream file(path, std::ios::app);
  file << line.dump(-1, ' ', true, Json::error_handler_t::replace) << "\n" << std::flush;
  if (!file) throw std::system_error(errno, std::generic_category(), "cannot write " + path);
}

// False, or Json::exception thrown, where it is no line of ours.
bool take(const Json& line, RankFile* result) {
  if (line.contains("row")) {
    RankRow row{line.at("row"), line.at("begin_ns"), line.at("end_ns"), line.at("wrong"),
                line.at("results")};
    if (row.begin_ns.size() != row.end_ns.size()) return false;
    result->rows.push_back(std::move(row));
  }
  if (line.contains("control_wrong"))
    result->control_wrong = line.at("control_wrong").get<int64_t>();
  if (line.contains("error")) result->error = line.at("error");
  return true;
}

}  // namespace

std::string rank_file_path(const std::string& run_dir, int64_t rank) {
  return fmt::format("{}/rank-{}.collective", run_dir, rank);
}

void append_row(const std::string& path, const RankRow& row) {
  append(path, {{"row", row.row},
                {"begin_ns", row.begin_ns},
                {"end_ns", row.end_ns},
                {"wrong", row.wrong},
                {"results", row.results}});
}

void append_control(const std::string& path, int64_t wrong) {
  append(path, {{"control_wrong", wrong}});
}

void append_error(const std::string& path, const std::string& error) {
  append(path, {{"error", error}});
}

RankFile read_rank_file(const std::string& path) {
  RankFile result;
  std::istringstream file(read_foreign_file(path, kResultBytesMost).value_or(""));
  for (std::string line; std::getline(file, line);) {
    const Json json = json_or_discarded(line);
    if (json.is_discarded()) break;
    try {
      if (!take(json, &result)) break;
    } catch (const Json::exception&) {
      break;
    }
  }
  return result;
}

}  // namespace lockstep
