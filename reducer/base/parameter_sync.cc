#include "reducer/base/parameter_sync.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>

#include "reducer/base/reducer_base.h"
#include "reducer/comm/collective.h"
#include "scenarios/base/hash.h"

namespace lockstep {
namespace {

constexpr size_t kPieceBytes = size_t{250} << 20;

struct CoalescedPart {
  std::vector<at::Tensor> tensors;
  at::Tensor flat;
  CommWorkPtr work;
};

std::vector<CoalescedPart> pieces_of(const std::vector<at::Tensor>& tensors) {
  std::vector<CoalescedPart> pieces;
  std::map<MemoryKey, std::pair<size_t, size_t>> open;  // piece, bytes in it
  for (const at::Tensor& tensor : tensors) {
    auto [found, is_new] = open.try_emplace(memory_key(tensor));
    auto& [piece, bytes] = found->second;
    if (is_new || bytes >= kPieceBytes) {
      piece = pieces.size();
      bytes = 0;
      pieces.emplace_back();
    }
    pieces[piece].tensors.push_back(tensor);
    bytes += tensor.nbytes();
  }
  return pieces;
}

at::Tensor flattened(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

void copy_back(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

std::string describe(const char* kind, const NamedTensor& named) {
  std::ostringstream text;
  const at::Tensor& tensor = named.tensor;
  text << kind << ' ' << named.name << ' ' << c10::toString(tensor.scalar_type()) << ' '
       << tensor.sizes() << " stride " << tensor.strides();
  if (tensor.requires_grad()) text << " requires_grad";
  return text.str();
}

std::vector<std::string> lines_of(const NamedTensors& parameters, const NamedTensors& buffers) {
  std::vector<std::string> lines;
  for (const auto& parameter : parameters) lines.push_back(describe("parameter", parameter));
  for (const auto& buffer : buffers) lines.push_back(describe("buffer", buffer));
  return lines;
}

at::Tensor tensor_of(const std::vector<int64_t>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}

// [world_size, n]
at::Tensor gather_all(const at::Tensor& own, Communicator& communicator, Deadline deadline) {
  at::Tensor all = at::zeros({communicator.world_size(), own.numel()}, own.options());
  communicator.all_gather(all, own, deadline)->wait();
  return all;
}

// The texts of all ranks: lines separated by newlines.
std::vector<std::string> gather_texts(const std::string& own, Communicator& communicator,
                                      Deadline deadline) {
  const at::Tensor lengths =
      gather_all(tensor_of({static_cast<int64_t>(own.size())}), communicator, deadline);
  const int64_t* length = lengths.data_ptr<int64_t>();
  const int64_t longest = *std::max_element(length, length + communicator.world_size());
  at::Tensor padded = at::zeros({longest}, at::kByte);
  std::memcpy(padded.data_ptr(), own.data(), own.size());
  const at::Tensor all = gather_all(padded, communicator, deadline);
  std::vector<std::string> texts;
  for (int64_t r = 0; r < communicator.world_size(); ++r) {
    const char* start = static_cast<const char*>(all.data_ptr()) + r * longest;
    texts.emplace_back(start, static_cast<size_t>(length[r]));
  }
  return texts;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Rank `odd` against rank `usual`.
std::string difference(const std::vector<std::string>& texts, size_t odd, size_t usual) {
  const auto own = split(texts[odd]), others = split(texts[usual]);
  for (size_t i = 0; i < std::max(others.size(), own.size()); ++i) {
    const std::string a = i < others.size() ? others[i] : "nothing in its place";
    const std::string b = i < own.size() ? own[i] : "nothing in its place";
    if (a != b)
      return "manifest: rank " + std::to_string(odd) + " has " + b + ", rank " +
             std::to_string(usual) + " has " + a;
  }
  return "";
}

bool same_rows(const at::Tensor& all, int64_t row) {
  const int64_t columns = all.size(1);
  const int64_t* data = all.data_ptr<int64_t>();
  return std::equal(data, data + columns, data + row * columns);
}

int64_t hash_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().cpu().contiguous();
  return static_cast<int64_t>(hash64(dense.data_ptr(), dense.nbytes()));
}

}  // namespace

MemoryKey memory_key(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.device().type(), tensor.device().index()};
}

void broadcast_coalesced(const std::vector<at::Tensor>& tensors, Communicator& communicator,
                         Deadline deadline, int64_t root) {
  c10::NoGradGuard no_grad;
  std::vector<CoalescedPart> pieces = pieces_of(tensors);
  for (CoalescedPart& piece : pieces) {
    piece.flat = flattened(piece.tensors);
    piece.work = communicator.broadcast(piece.flat, root, deadline);
  }
  for (CoalescedPart& piece : pieces) {
    piece.work->wait();
    copy_back(piece.flat, piece.tensors);
  }
}

void check_manifest(const NamedTensors& parameters, const NamedTensors& buffers,
                    Communicator& communicator, Deadline deadline) {
  std::string text;
  for (const std::string& line : lines_of(parameters, buffers)) text += line + "\n";
  Hash128 hash;
  hash.update(std::string_view(text));
  const auto digest = hash.digest();
  const at::Tensor all =
      gather_all(tensor_of({static_cast<int64_t>(digest[0]), static_cast<int64_t>(digest[1])}),
                 communicator, deadline);
  bool agreed = true;
  for (int64_t r = 1; r < communicator.world_size(); ++r) agreed = agreed && same_rows(all, r);
  if (agreed) return;
  const auto texts = gather_texts(text, communicator, deadline);
  const size_t usual = most_common(texts);
  const auto self = static_cast<size_t>(communicator.rank());
  if (texts[self] != texts[usual])
    throw CommError(CommFailure::rejected, difference(texts, self, usual),
                    {.peer = communicator.rank()});
  for (size_t r = 0; r < texts.size(); ++r)
    if (texts[r] != texts[usual])
      throw CommError(CommFailure::peer_lost, difference(texts, r, usual),
                      {.peer = static_cast<int64_t>(r)});
}

std::string differing_values(const NamedTensors& parameters, const NamedTensors& buffers,
                             Communicator& communicator, Deadline deadline) {
  std::vector<std::string> names;
  std::vector<int64_t> hashes;
  for (const NamedTensors* tensors : {&parameters, &buffers}) {
    for (const NamedTensor& named : *tensors) {
      names.push_back(named.name);
      hashes.push_back(hash_of(named.tensor));
    }
  }
  const at::Tensor all = gather_all(tensor_of(hashes), communicator, deadline);
  const int64_t* data = all.data_ptr<int64_t>();
  for (int64_t r = 1; r < communicator.world_size(); ++r) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (data[static_cast<size_t>(r) * names.size() + i] == data[i]) continue;
      return "rank " + std::to_string(r) + ": " + names[i] + " differs from rank 0's";
    }
  }
  return "";
}

void average_parameters(const NamedTensors& parameters, Communicator& communicator,
                        Deadline deadline) {
  const c10::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& tensor : trained(parameters).tensors)
    by_type[tensor.scalar_type()].push_back(tensor);
  for (const auto& [type, tensors] : by_type) {
    at::Tensor flat = flattened(tensors);
    flat.div_(communicator.world_size());
    communicator.all_reduce(flat, deadline)->wait();
    copy_back(flat, tensors);
  }
}

}  // namespace lockstep
