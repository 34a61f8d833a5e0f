#pragma once

#include <memory>

#include "reducer/communicator.h"
#include "sim/worker/control.h"

namespace lockstep {

// The rendezvous store that the launcher serves over the control socket, as reducer/ wants it.
// `control` must outlive it.
std::shared_ptr<Store> make_control_store(Control& control);

}  // namespace lockstep
