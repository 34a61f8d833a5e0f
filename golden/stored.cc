#include "golden/stored.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "scenarios/base/file.h"
#include "scenarios/base/hash.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/pointer.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string hex_of(uint32_t bits) { return fmt::format("{:08x}", bits); }

// Short enough to be read, long enough to give the same bits back.
double shortest(uint32_t bits) {
  const auto value = std::bit_cast<float>(bits);
  return std::isfinite(value) ? std::stod(fmt::format("{}", value)) : 0;
}

// Of everything that the file says, not of its text: white space does not count.
std::string checksum_of(const StoredGolden& golden) {
  Hash128 hash;
  const auto number = [&hash](const auto& value) { hash.update(&value, sizeof value); };
  for (const std::string* text :
       {&golden.what, &golden.source, &golden.settings, &golden.fingerprint})
    hash.update(*text);
  number(golden.decimals);
  for (const StoredTensor& tensor : golden.parameters) {
    hash.update(tensor.name);
    for (int64_t size : tensor.shape) number(size);
    for (uint32_t bits : tensor.bits) number(bits);
  }
  for (const PublishedValues& published : golden.published) {
    hash.update(published.of);
    hash.update(published.tensor);
    for (double value : published.values) number(value);
  }
  return hex(hash.digest());
}

// Numbers of a tensor on lines of ten, so that a change shows as one changed line.
template <class Value, class Print>
std::string lines_of(const std::vector<Value>& values, Print print) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i)
    text += (i == 0 ? "" : ",") + std::string(i % 10 == 0 ? "\n   " : " ") + print(values[i]);
  return text + "]";
}

// Reads a document made by to_text(); the first thing that is wrong is noted with its pointer.
class Reader {
 public:
  Reader(const Json& document, const Places& places) : document_(document), places_(places) {}

  StoredGolden read() {
    StoredGolden golden;
    golden.what = text("/what");
    golden.source = text("/source");
    golden.settings = object("/settings");
    golden.fingerprint = text("/fingerprint");
    golden.decimals = integer("/decimals", 0, 9);
    const size_t count = array("/parameters");
    for (size_t i = 0; i < count && errors_.empty(); ++i)
      golden.parameters.push_back(tensor("/parameters/" + std::to_string(i)));
    const size_t printouts = array("/published");
    for (size_t i = 0; i < printouts && errors_.empty(); ++i)
      golden.published.push_back(published("/published/" + std::to_string(i)));
    if (errors_.empty()) compare_checksum(golden);
    return golden;
  }

  const InputErrors& errors() const { return errors_; }

 private:
  void fail(const std::string& pointer, std::string message, std::string allowed) {
    if (!errors_.empty()) return;
    InputError error;
    error.pointer = pointer;
    error.message = std::move(message);
    error.allowed = std::move(allowed);
    places_.locate(pointer, false, &error);
    errors_.push_back(std::move(error));
  }

  // nullptr, with an error, if there is no such value or it is of another type.
  template <class IsType>
  const Json* find(const std::string& pointer, const std::string& type, IsType is_type) {
    const Json::json_pointer place(pointer);
    if (document_.contains(place) && is_type(document_.at(place))) return &document_.at(place);
    fail(pointer, fmt::format("a stored golden without {}", pointer), type);
    return nullptr;
  }

  std::string text(const std::string& pointer) {
    const Json* value = find(pointer, "a string", [](const Json& j) { return j.is_string(); });
    return value ? value->get<std::string>() : "";
  }

  std::string object(const std::string& pointer) {
    const Json* value = find(pointer, "an object", [](const Json& j) { return j.is_object(); });
    return value ? value->dump() : "";
  }

  PublishedValues published(const std::string& pointer) {
    PublishedValues published{
        .of = text(pointer + "/of"), .tensor = text(pointer + "/tensor"), .values = {}};
    const size_t count = array(pointer + "/values");
    for (size_t i = 0; i < count && errors_.empty(); ++i)
      published.values.push_back(number(pointer + "/values/" + std::to_string(i)));
    return published;
  }

  double number(const std::string& pointer) {
    const Json* value = find(pointer, "a number", [](const Json& j) { return j.is_number(); });
    return value ? value->get<double>() : 0;
  }

  int64_t integer(const std::string& pointer, int64_t low, int64_t high) {
    const std::string allowed = fmt::format("an integer from {} to {}", low, high);
    const Json* value = find(pointer, allowed, [](const Json& j) { return j.is_number_integer(); });
    if (value == nullptr) return low;
    const auto number = value->get<int64_t>();
    if (number < low || number > high)
      fail(pointer, fmt::format("{} is out of range", number), allowed);
    return number;
  }

  size_t array(const std::string& pointer) {
    const Json* value = find(pointer, "an array", [](const Json& j) { return j.is_array(); });
    return value ? value->size() : 0;
  }

  StoredTensor tensor(const std::string& pointer) {
    StoredTensor tensor;
    tensor.name = text(pointer + "/name");
    double numel = 1;  // exact up to 2^53, and cannot overflow
    const size_t dimensions = array(pointer + "/shape");
    for (size_t i = 0; i < dimensions && errors_.empty(); ++i) {
      tensor.shape.push_back(integer(pointer + "/shape/" + std::to_string(i), 1, INT32_MAX));
      numel *= static_cast<double>(tensor.shape.back());
    }
    const size_t count = array(pointer + "/bits");
    if (static_cast<double>(count) != numel)
      fail(pointer + "/bits", fmt::format("{} has {} values", tensor.name, count),
           fmt::format("{} for its shape", numel));
    if (array(pointer + "/values") != count)
      fail(pointer + "/values", "values and bits of " + tensor.name + " differ in number", "");
    for (size_t i = 0; i < count && errors_.empty(); ++i)
      tensor.bits.push_back(element(pointer, std::to_string(i)));
    return tensor;
  }

  uint32_t element(const std::string& pointer, const std::string& index) {
    const std::string digits = text(pointer + "/bits/" + index);
    uint32_t bits = 0;
    const auto end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, bits, 16);
    if (digits.size() != 8 || parsed.ec != std::errc() || parsed.ptr != end)
      fail(pointer + "/bits/" + index, fmt::format("\"{}\" is not a float32", digits),
           "8 hexadecimal digits");
    if (number(pointer + "/values/" + index) != shortest(bits))
      fail(pointer + "/values/" + index, "the value and its bits are not the same number",
           fmt::format("{}", shortest(bits)));
    return bits;
  }

  void compare_checksum(const StoredGolden& golden) {
    const std::string stated = text("/checksum");
    const std::string found = checksum_of(golden);
    if (stated != found)
      fail("/checksum",
           fmt::format("the stored golden was changed: its checksum is \"{}\"", stated),
           fmt::format("\"{}\"", found));
  }

  const Json& document_;
  const Places& places_;
  InputErrors errors_;
};

}  // namespace

// Two entries for each number of a model.
constexpr JsonLimits kGoldenLimits{20'000'000, size_t{1} << 30, false};

Expected<StoredGolden> load_stored_golden(const std::string& path) {
  const auto text = read_foreign_file(path, kResultBytesMost);
  if (!text) return text.errors();
  Json document;
  Places places(path);
  InputErrors errors;
  if (!read_json(text.value(), path, &document, &places, &errors, kGoldenLimits)) return errors;
  Reader reader(document, places);
  StoredGolden golden = reader.read();
  if (!reader.errors().empty()) return reader.errors();
  return golden;
}

std::string to_text(const StoredGolden& golden) {
  const auto quoted = [](const std::string& text) { return Json(text).dump(); };
  std::string out = "{\n";
  out += fmt::format(" \"what\": {},\n", quoted(golden.what));
  out += fmt::format(" \"source\": {},\n", quoted(golden.source));
  out += fmt::format(" \"settings\": {},\n", golden.settings);
  out += fmt::format(" \"fingerprint\": {},\n", quoted(golden.fingerprint));
  out += fmt::format(" \"decimals\": {},\n \"parameters\": [", golden.decimals);
  for (size_t i = 0; i < golden.parameters.size(); ++i) {
    const StoredTensor& tensor = golden.parameters[i];
    out += fmt::format("{}\n  {{\"name\": {}, \"shape\": {},\n", i == 0 ? "" : ",",
                       quoted(tensor.name), Json(tensor.shape).dump());
    out += "   \"bits\": " +
           lines_of(tensor.bits, [&](uint32_t bits) { return quoted(hex_of(bits)); });
    out += ",\n   \"values\": " +
           lines_of(tensor.bits, [](uint32_t bits) { return Json(shortest(bits)).dump(); });
    out += "}";
  }
  out += "\n ],\n \"published\": [";
  for (size_t i = 0; i < golden.published.size(); ++i) {
    const PublishedValues& published = golden.published[i];
    out += fmt::format("{}\n  {{\"of\": {}, \"tensor\": {},\n   \"values\": ", i == 0 ? "" : ",",
                       quoted(published.of), quoted(published.tensor));
    out += lines_of(published.values, [](double value) { return Json(value).dump(); }) + "}";
  }
  out += fmt::format("\n ],\n \"checksum\": {}\n}}\n", quoted(checksum_of(golden)));
  return out;
}

std::string golden_settings(const Scenario& scenario) {
  const Json all = as_json(scenario);
  Json settings;
  for (const char* key : {"seed", "steps", "batch_size", "dtype", "rng", "requantize", "model",
                          "data", "loss", "optimizer"})
    settings[key] = all.at(key);
  // What a stored run did not know of is as it was then.
  const auto forget = [&](const char* key, const Json& usual) {
    Json& model = settings["model"];
    if (model.contains(key) && model[key] == usual) model.erase(key);
  };
  forget("memory_format", "contiguous");
  forget("dropout", 0.0);
  settings["data"].erase("workers");  // who prepares the samples changes none of them
  for (const char* key : {"report_every", "report_of", "published"}) settings["loss"].erase(key);
  return settings.dump();
}

}  // namespace lockstep
