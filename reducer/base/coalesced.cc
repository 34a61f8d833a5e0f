#include "reducer/base/coalesced.h"

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <map>

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

}  // namespace

MemoryKey memory_key(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.device().type(), tensor.device().index()};
}

void broadcast_coalesced(const std::vector<at::Tensor>& tensors, Communicator& communicator,
                         Deadline deadline, int64_t root) {
  c10::NoGradGuard no_grad;
  std::vector<CoalescedPart> pieces = pieces_of(tensors);
  for (CoalescedPart& piece : pieces) {
    std::vector<at::Tensor> flattened;
    for (const at::Tensor& tensor : piece.tensors) flattened.push_back(tensor.reshape({-1}));
    piece.flat = at::cat(flattened);
    piece.work = communicator.broadcast(piece.flat, root, deadline);
  }
  for (CoalescedPart& piece : pieces) {
    piece.work->wait();
    int64_t offset = 0;
    for (const at::Tensor& tensor : piece.tensors) {
      tensor.copy_(piece.flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
      offset += tensor.numel();
    }
  }
}

}  // namespace lockstep
