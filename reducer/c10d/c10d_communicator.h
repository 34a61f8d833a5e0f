#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include "reducer/c10d/c10d_adapters.h"

namespace lockstep {

// Any backend of LibTorch's as a Communicator, for those that know the tensors of one device alone
// and call nobody back when a collective has ended on it, as ProcessGroupNCCL. A thread asks for
// the end of each work, so that works end, deadlines included, when their result is there. Tensors
// of the host travel through copies on `device`. A barrier is a sum of one element.

// abort(): ends what the backend has under way, from any thread; called once, when a deadline has
// passed or a collective has failed.
std::unique_ptr<Communicator> make_backend_communicator(c10::intrusive_ptr<C10dBackend> backend,
                                                        c10::Device device,
                                                        std::function<void()> abort);

}  // namespace lockstep
