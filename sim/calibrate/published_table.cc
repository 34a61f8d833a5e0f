#include "sim/calibrate/published_table.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <utility>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/schema.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const Schema& table_schema() {
  static const Schema schema(table_schema_text());
  return schema;
}

constexpr double kMostStepMs = 3'600'000;  // as the schema has it of ms

class TableReader {
 public:
  TableReader(const Json& document, const std::string& file, const Places& places)
      : document_(document), file_(file), places_(places) {}

  Expected<PublishedTable> read() {
    PublishedTable table;
    table.source = document_["source"].get<std::string>();
    for (size_t i = 0; i < document_["rows"].size(); ++i) table.rows.push_back(row(i));
    check_what_is_fitted(table);
    if (!errors_.empty()) return errors_;
    return table;
  }

 private:
  static std::string pointer_of(size_t i) { return fmt::format("/rows/{}", i); }

  void refuse(const std::string& pointer, const std::string& message, const std::string& allowed) {
    if (errors_.size() >= kMostErrors) return;
    InputError error{file_, 0, 0, pointer, message, allowed};
    places_.locate(pointer, false, &error);
    errors_.push_back(std::move(error));
  }

  PublishedRow row(size_t i) {
    const Json& json = document_["rows"][i];
    PublishedRow row;
    row.place = {file_, 0, 0, pointer_of(i), "", ""};
    places_.locate(row.place.pointer, false, &row.place);
    row.ranks = json["ranks"].get<int64_t>();
    if (json.contains("bucket_cap_mb")) row.cap_mb = json["bucket_cap_mb"].get<double>();
    row.synchronized = json.value("synchronized", true);
    row.fitted = json.value("fit", false);
    if (json.contains("accumulate_steps")) row.passes = json["accumulate_steps"].get<int64_t>();
    const Json& samples_of = json.contains("samples_per_rank") ? json : document_;
    if (samples_of.contains("samples_per_rank"))
      row.samples = samples_of["samples_per_rank"].get<double>();
    row.ms = ms_of(json, i, row);
    if (!row.synchronized && row.ranks > 1)
      refuse(pointer_of(i) + "/ranks", fmt::format("{} ranks that are not synchronized", row.ranks),
             "1");
    if (!row.synchronized && row.cap_mb)
      refuse(pointer_of(i) + "/bucket_cap_mb", "a row without a reducer has no buckets",
             "no bucket_cap_mb");
    if (!row.synchronized && row.fitted)
      refuse(pointer_of(i) + "/fit", "compute alone is always fitted to",
             "\"fit\" in a row with a reducer");
    return row;
  }

  double ms_of(const Json& json, size_t i, const PublishedRow& row) {
    if (json.contains("ms") == json.contains("samples_per_s")) {
      refuse(pointer_of(i), "how long a step takes is said twice, or not at all",
             "one of ms and samples_per_s");
      return 1;
    }
    if (json.contains("ms")) return json["ms"].get<double>();
    if (!row.samples) {
      refuse(pointer_of(i) + "/samples_per_s", "of how many samples a step is not known",
             "samples_per_rank here, or beside \"rows\"");
      return 1;
    }
    const double samples = *row.samples * static_cast<double>(row.ranks);
    const double ms = samples * 1e3 / json["samples_per_s"].get<double>();
    if (ms > kMostStepMs)
      refuse(pointer_of(i) + "/samples_per_s", fmt::format("a step of {:g} ms", ms),
             fmt::format("{} ms at most", kMostStepMs));
    return ms;
  }

  void check_what_is_fitted(const PublishedTable& table) {
    int64_t fitted = 0, alone = 0;
    for (const PublishedRow& row : table.rows) {
      fitted += row.fitted ? 1 : 0;
      alone += row.synchronized ? 0 : 1;
    }
    if (fitted != 1)
      refuse("/rows", fmt::format("{} rows have \"fit\": true", fitted), "one of them");
    if (alone > 1)
      refuse("/rows", fmt::format("{} rows are of compute alone", alone), "one at most");
  }

  const Json& document_;
  const std::string& file_;
  const Places& places_;
  InputErrors errors_;
};

}  // namespace

Expected<PublishedTable> read_published_table(const std::string& path) {
  const auto text = read_foreign_file(path);
  if (!text) return text.errors();
  const std::string file = printable(path);
  const auto read = read_json_of(table_schema().root(), text.value(), file);
  if (!read) return read.errors();
  return TableReader(read.value().document, file, read.value().places).read();
}

}  // namespace lockstep
