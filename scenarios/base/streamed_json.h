#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>

#include "scenarios/base/error.h"
#include "scenarios/base/unpacked_bytes.h"

namespace lockstep {

// What is wrong with a document of any size that is read event by event: `reader` derives from
// nlohmann::json_sax<nlohmann::json>, keeps what counts, and has called bytes->pause() after each
// value. `allowed`: what a file should be. Throws TooMuch.
// `bytes`: where begin and end are its own; null: the text is in memory, without places.
template <class Iterator, class Reader>
std::optional<InputError> read_streamed(Iterator begin, Iterator end, UnpackedBytes* bytes,
                                        const std::string& path, const char* allowed,
                                        Reader* reader) {
  using Json = nlohmann::json;
  const bool read = Json::sax_parse(begin, end, reader, Json::input_format_t::json);
  if (bytes != nullptr && !read) bytes->look_for_damage();
  if (bytes != nullptr && !bytes->problem().empty())
    return file_error(path, bytes->problem(), allowed);
  if (read) return std::nullopt;
  return InputError{path,
                    bytes == nullptr ? 0 : bytes->line(),
                    bytes == nullptr ? 0 : bytes->column(),
                    "",
                    "is no JSON, or cut off",
                    allowed};
}

// The file at `path`, by parse(begin, end, bytes, path); what is beyond the limits is bad input.
template <class Trace, class Parse>
Expected<Trace> read_streamed_file(const std::string& path, const char* allowed, Parse parse) {
  const auto bytes = UnpackedBytes::open(path);
  if (!bytes) return bytes.errors();
  UnpackedBytes& all = *bytes.value();
  try {
    return parse(all.begin(), all.end(), &all, path);
  } catch (const TooMuch& error) {
    return InputError{path, all.line(), all.column(), "", error.what(), allowed};
  }
}

}  // namespace lockstep
