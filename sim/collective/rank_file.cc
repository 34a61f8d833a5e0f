#include "sim/collective/rank_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "scenarios/base/foreign_file.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

void append(const std::string& path, const Json& line) {
  std::ofstream file(path, std::ios::app);
  file << line.dump(-1, ' ', true, Json::error_handler_t::replace) << "\n" << std::flush;
  if (!file) throw std::system_error(errno, std::generic_category(), "cannot write " + path);
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
    if (json.contains("row"))
      result.rows.push_back(
          {json["row"], json["begin_ns"], json["end_ns"], json["wrong"], json["results"]});
    if (json.contains("control_wrong")) result.control_wrong = json["control_wrong"].get<int64_t>();
    if (json.contains("error")) result.error = json["error"];
  }
  return result;
}

}  // namespace lockstep
