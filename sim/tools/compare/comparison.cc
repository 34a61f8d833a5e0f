#include "sim/tools/compare/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 3> kExtensions = {".safetensors", ".pt", ".pth"};

bool is_decimal(char c) { return c >= '0' && c <= '9'; }

// step-2 before step-10: runs of digits by their value.
bool naturally_before(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_decimal(a[i]) || !is_decimal(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
      continue;
    }
    const auto number = [](const std::string& text, size_t* at) {
      while (*at + 1 < text.size() && text[*at] == '0' && is_decimal(text[*at + 1])) ++*at;
      const size_t begin = *at;
      while (*at < text.size() && is_decimal(text[*at])) ++*at;
      return text.substr(begin, *at - begin);
    };
    const std::string x = number(a, &i), y = number(b, &j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;
}

using Files = std::vector<std::string>;  // relative

Files checkpoints_of(const fs::path& folder, std::error_code* error) {
  Files files;
  // Links to folders are not followed: no loops.
  fs::recursive_directory_iterator entry(folder, *error), end;
  for (; !*error && entry != end; entry.increment(*error)) {
    const std::string extension = entry->path().extension().string();
    if (std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end() &&
        !entry->is_directory())
      files.push_back(entry->path().lexically_relative(folder).string());
  }
  return files;
}

std::string stem_of(const std::string& name) { return fs::path(name).replace_extension().string(); }

// Those whose stem is unique, by stem.
std::map<std::string, std::string> by_stem(const Files& files) {
  std::map<std::string, std::string> stems;
  for (const std::string& file : files)
    if (const auto [place, is_new] = stems.emplace(stem_of(file), file); !is_new)
      place->second.clear();
  std::erase_if(stems, [](const auto& stem) { return stem.second.empty(); });
  return stems;
}

Expected<Files> read_folder(const std::string& folder) {
  std::error_code error;
  Files files = checkpoints_of(folder, &error);
  if (error) return file_error(folder, error.message());
  if (files.empty())
    return file_error(folder, "has no checkpoints in it", ".safetensors, .pt or .pth files");
  return files;
}

}  // namespace

bool has_checkpoints(const std::string& folder) {
  std::error_code error;
  return !checkpoints_of(folder, &error).empty();
}

Expected<std::vector<FilePair>> pair_files(const std::string& a, const std::string& b) {
  std::error_code error;
  for (const std::string& path : {a, b})
    if (!fs::exists(path, error)) return file_error(path, error ? error.message() : "is not there");
  const bool folders = fs::is_directory(a, error);
  if (folders != fs::is_directory(b, error))
    return file_error(
        a,
        folders ? "is a folder, and " + b + " is a file" : "is a file, and " + b + " is a folder",
        "two files or two folders");
  if (!folders) return std::vector<FilePair>{{fs::path(a).filename().string(), a, b}};
  const auto of_a = read_folder(a), of_b = read_folder(b);
  if (!of_a) return of_a.errors();
  if (!of_b) return of_b.errors();
  const auto stems_a = by_stem(of_a.value()), stems_b = by_stem(of_b.value());
  Files left = of_b.value();
  std::vector<FilePair> pairs;
  for (const std::string& name : of_a.value()) {
    std::string partner;
    const auto stem = stems_b.find(stem_of(name));
    if (std::find(left.begin(), left.end(), name) != left.end())
      partner = name;
    else if (stem != stems_b.end() && stems_a.contains(stem->first))
      partner = stem->second;
    std::erase(left, partner);
    pairs.push_back({name, (fs::path(a) / name).string(),
                     partner.empty() ? "" : (fs::path(b) / partner).string()});
  }
  for (const std::string& name : left) pairs.push_back({name, "", (fs::path(b) / name).string()});
  std::sort(pairs.begin(), pairs.end(),
            [](const FilePair& x, const FilePair& y) { return naturally_before(x.name, y.name); });
  return pairs;
}

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Walks over all elements in row-major order, a row (the last axis) at a time.
template <class Row>
void for_each_row(const CheckpointTensor& a, const CheckpointTensor& b, Row&& row) {
  const size_t axes = a.shape.size();
  if (a.numel() == 0) return;
  if (axes == 0) return row(int64_t{0}, int64_t{0}, int64_t{1}, int64_t{1}, int64_t{1});
  if (a.contiguous() && b.contiguous())
    return row(int64_t{0}, int64_t{0}, int64_t{1}, int64_t{1}, a.numel());
  std::vector<int64_t> at(axes - 1);
  int64_t a_at = 0, b_at = 0;
  for (;;) {
    row(a_at, b_at, a.strides.back(), b.strides.back(), a.shape.back());
    size_t axis = axes - 1;
    for (; axis > 0; --axis) {
      const size_t i = axis - 1;
      a_at += a.strides[i];
      b_at += b.strides[i];
      if (++at[i] < a.shape[i]) break;
      a_at -= at[i] * a.strides[i];
      b_at -= at[i] * b.strides[i];
      at[i] = 0;
    }
    if (axis == 0) return;
  }
}

template <class Number>
class Differences {
 public:
  using Bits = typename Number::Bits;
  Differences(const Tolerance& tolerance, int parts) : tolerance_(tolerance), parts_(parts) {}

  void row(const std::byte* a, const std::byte* b, int64_t a_stride, int64_t b_stride,
           int64_t count) {
    const auto width = static_cast<int64_t>(sizeof(Bits)) * parts_;
    for (int64_t i = 0; i < count; ++i, ++element_) {
      bool differs = false, disagrees = false;
      for (int part = 0; part < parts_; ++part) {
        const auto offset = static_cast<int64_t>(sizeof(Bits)) * part;
        one(load(a + i * a_stride * width + offset), load(b + i * b_stride * width + offset),
            &differs, &disagrees);
      }
      found_.differing += differs ? 1 : 0;
      found_.disagreeing += disagrees ? 1 : 0;
    }
  }
  std::optional<TensorDifference> found() const {
    if (found_.differing == 0) return std::nullopt;
    return found_;
  }

 private:
  static Bits load(const std::byte* from) {
    Bits bits;
    std::memcpy(&bits, from, sizeof bits);
    return bits;
  }

  void one(Bits a, Bits b, bool* differs, bool* disagrees) {
    const double y = Number::value(b);
    if (std::isfinite(y)) found_.largest_of_b = std::max(found_.largest_of_b, std::abs(y));
    if (a == b) return;
    const double x = Number::value(a);
    *differs = true;
    const uint64_t ulp = Number::ulp(a, b);
    const double error = error_of(x, y, ulp);
    const bool agrees =
        !tolerance_.bitwise() &&
        ((std::isnan(x) && std::isnan(y)) ||
         (std::isfinite(error) && error <= tolerance_.atol + tolerance_.rtol * std::abs(y)));
    found_.max_ulp = std::max(found_.max_ulp, ulp);
    found_.largest_error = std::max(found_.largest_error, error);
    if (agrees) return;
    if (found_.disagreeing == 0 && !*disagrees) {
      found_.element = element_;
      found_.a_value = x;
      found_.b_value = y;
      found_.a_bits = a;
      found_.b_bits = b;
      found_.ulp = ulp;
    }
    *disagrees = true;
  }

  // Of integers their distance, which doubles of both might lose.
  static double error_of(double x, double y, uint64_t ulp) {
    if constexpr (requires { typename Number::Integer; }) return static_cast<double>(ulp);
    if (std::isnan(x) && std::isnan(y)) return 0;
    const double error = std::abs(x - y);
    return std::isnan(error) ? kInfinite : error;
  }

  const Tolerance& tolerance_;
  int parts_;
  int64_t element_ = 0;
  TensorDifference found_;
};

bool same_bytes(const CheckpointTensor& a, const CheckpointTensor& b) {
  if (!a.contiguous() || !b.contiguous()) return false;
  return std::memcmp(a.first, b.first, static_cast<size_t>(a.numel() * bytes_of(a.dtype))) == 0;
}

}  // namespace

double TensorDifference::relative_error() const {
  if (largest_error == 0) return 0;
  return largest_of_b > 0 ? largest_error / largest_of_b : kInfinite;
}

std::optional<TensorDifference> compare_tensors(const CheckpointTensor& a,
                                                const CheckpointTensor& b,
                                                const Tolerance& tolerance) {
  LOCKSTEP_CHECK(a.dtype == b.dtype && a.shape == b.shape, "tensors that cannot be compared");
  if (same_bytes(a, b)) return std::nullopt;
  const int64_t width = bytes_of(a.dtype);
  return with_number(a.dtype, [&](auto number) {
    Differences<decltype(number)> differences(tolerance, is_complex(a.dtype) ? 2 : 1);
    for_each_row(
        a, b, [&](int64_t a_at, int64_t b_at, int64_t a_stride, int64_t b_stride, int64_t count) {
          differences.row(a.first + a_at * width, b.first + b_at * width, a_stride, b_stride,
                          count);
        });
    return differences.found();
  });
}

namespace {

constexpr std::string_view kModule = "module.";

// "model/module.fc.weight" -> "model/fc.weight"
std::string without_module(const std::string& name) {
  const size_t slash = name.rfind('/');
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  if (name.compare(begin, kModule.size(), kModule) != 0) return name;
  return name.substr(0, begin) + name.substr(begin + kModule.size());
}

using IndexByName = std::map<std::string, size_t, std::less<>>;

// The places of b's tensors by name.
IndexByName places_of(const Checkpoint& b) {
  IndexByName places;
  for (size_t i = 0; i < b.tensors.size(); ++i) places[b.tensors[i].name] = i;
  return places;
}

// For each of a's tensors its partner in b. First by name; of those that are left, without DDP's
// prefix on one side.
class Partners {
 public:
  Partners(const Checkpoint& a, const Checkpoint& b) : of_a_(a.tensors.size(), kNone) {
    const IndexByName places = places_of(b);
    taken_.resize(b.tensors.size());
    for (size_t i = 0; i < a.tensors.size(); ++i) match(i, places.find(a.tensors[i].name), places);
    IndexByName bare;  // of b's names that begin with the prefix
    for (size_t i = 0; i < b.tensors.size(); ++i)
      if (!taken_[i]) bare.emplace(without_module(b.tensors[i].name), i);
    for (size_t i = 0; i < a.tensors.size(); ++i) {
      if (of_a_[i] != kNone) continue;
      const std::string& name = a.tensors[i].name;
      if (match(i, bare.find(name), bare))
        ++module_in_b;
      else if (const std::string less = without_module(name);
               less != name && match(i, places.find(less), places))
        ++module_in_a;
    }
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);
  size_t of_a(size_t i) const { return of_a_[i]; }
  bool taken(size_t i) const { return taken_[i]; }
  int64_t module_in_a = 0, module_in_b = 0;

 private:
  bool match(size_t i, IndexByName::const_iterator found, const IndexByName& places) {
    if (found == places.end() || taken_[found->second]) return false;
    of_a_[i] = found->second;
    taken_[found->second] = true;
    return true;
  }

  std::vector<size_t> of_a_;
  std::vector<bool> taken_;
};

using Outcome = TensorComparison::Outcome;

TensorComparison compare_pair(const CheckpointTensor& a, const CheckpointTensor& b,
                              const Tolerance& tolerance) {
  TensorComparison made{Outcome::equal, a.name, a, b, std::nullopt};
  if (a.shape != b.shape) {
    made.outcome = Outcome::other_shape;
  } else if (a.dtype != b.dtype) {
    made.outcome = Outcome::other_dtype;
  } else if (const auto difference = compare_tensors(a, b, tolerance)) {
    made.difference = difference;
    made.outcome = difference->disagreeing > 0 ? Outcome::different : Outcome::close;
  }
  // What is kept of a comparison must not refer to files that are closed.
  made.a->first = made.b->first = nullptr;
  return made;
}

}  // namespace

bool CheckpointComparison::agrees() const {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const TensorComparison& tensor) { return tensor.agrees(); });
}

CheckpointComparison compare_checkpoints(const Checkpoint& a, const Checkpoint& b,
                                         const Tolerance& tolerance) {
  const Partners partners(a, b);
  CheckpointComparison made;
  made.module_in_a = partners.module_in_a;
  made.module_in_b = partners.module_in_b;
  made.skipped_in_a = a.skipped;
  made.skipped_in_b = b.skipped;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const CheckpointTensor& tensor = a.tensors[i];
    if (partners.of_a(i) == Partners::kNone) {
      made.tensors.push_back({Outcome::only_a, tensor.name, tensor, std::nullopt, std::nullopt});
      continue;
    }
    made.tensors.push_back(compare_pair(tensor, b.tensors[partners.of_a(i)], tolerance));
    const Outcome outcome = made.tensors.back().outcome;
    if (outcome != Outcome::other_shape && outcome != Outcome::other_dtype)
      made.elements += tensor.numel();
  }
  for (size_t i = 0; i < b.tensors.size(); ++i)
    if (!partners.taken(i))
      made.tensors.push_back(
          {Outcome::only_b, b.tensors[i].name, std::nullopt, b.tensors[i], std::nullopt});
  return made;
}

}  // namespace lockstep
