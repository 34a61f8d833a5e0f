#include "sim/tools/explain/log_exception.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace lockstep {
namespace {

struct TypeOrigin {
  std::string_view type;  // without its module
  ExceptionOrigin origin;
};

constexpr std::array kTypes = {
    TypeOrigin{"DistBackendError", ExceptionOrigin::communication},
    TypeOrigin{"DistNetworkError", ExceptionOrigin::communication},
    TypeOrigin{"DistStoreError", ExceptionOrigin::communication},
    TypeOrigin{"DistQueueEmptyError", ExceptionOrigin::communication},
    TypeOrigin{"DistError", ExceptionOrigin::communication},
    TypeOrigin{"ConnectionError", ExceptionOrigin::communication},
    TypeOrigin{"ConnectionResetError", ExceptionOrigin::communication},
    TypeOrigin{"ConnectionAbortedError", ExceptionOrigin::communication},
    TypeOrigin{"ConnectionRefusedError", ExceptionOrigin::communication},
    TypeOrigin{"TimeoutError", ExceptionOrigin::communication},
    TypeOrigin{"RendezvousTimeoutError", ExceptionOrigin::communication},
    TypeOrigin{"RendezvousConnectionError", ExceptionOrigin::communication},
    TypeOrigin{"RendezvousClosedError", ExceptionOrigin::communication},
    TypeOrigin{"RendezvousStateError", ExceptionOrigin::communication},
    TypeOrigin{"RendezvousGracefulExitError", ExceptionOrigin::stop},
    TypeOrigin{"HorovodInternalError", ExceptionOrigin::communication},
    TypeOrigin{"Timeout", ExceptionOrigin::unclear},  // filelock's: a peer may hold the lock
    TypeOrigin{"EOFError", ExceptionOrigin::unclear},
    TypeOrigin{"BrokenPipeError", ExceptionOrigin::unclear},  // of any pipe
    TypeOrigin{"Empty", ExceptionOrigin::unclear},
    TypeOrigin{"CancelledError", ExceptionOrigin::unclear},
    TypeOrigin{"EngineDeadError", ExceptionOrigin::unclear},
    TypeOrigin{"RayTaskError", ExceptionOrigin::unclear},
    TypeOrigin{"RayActorError", ExceptionOrigin::unclear},
    TypeOrigin{"ActorDiedError", ExceptionOrigin::unclear},
    TypeOrigin{"ActorUnavailableError", ExceptionOrigin::unclear},
    TypeOrigin{"WorkerCrashedError", ExceptionOrigin::unclear},
    TypeOrigin{"NodeDiedError", ExceptionOrigin::unclear},
    TypeOrigin{"ObjectLostError", ExceptionOrigin::unclear},
    TypeOrigin{"OwnerDiedError", ExceptionOrigin::unclear},
    // Of what the rank asks of other processes, by HTTP, gRPC or ZeroMQ: these may be peers.
    TypeOrigin{"ConnectError", ExceptionOrigin::unclear},
    TypeOrigin{"ConnectTimeout", ExceptionOrigin::unclear},
    TypeOrigin{"ReadError", ExceptionOrigin::unclear},
    TypeOrigin{"ReadTimeout", ExceptionOrigin::unclear},
    TypeOrigin{"RemoteProtocolError", ExceptionOrigin::unclear},
    TypeOrigin{"ServerDisconnectedError", ExceptionOrigin::unclear},
    TypeOrigin{"ClientConnectorError", ExceptionOrigin::unclear},
    TypeOrigin{"ClientOSError", ExceptionOrigin::unclear},
    TypeOrigin{"Again", ExceptionOrigin::unclear},
    TypeOrigin{"ZMQError", ExceptionOrigin::unclear},
    TypeOrigin{"RpcError", ExceptionOrigin::unclear},
    TypeOrigin{"_InactiveRpcError", ExceptionOrigin::unclear},
    TypeOrigin{"AioRpcError", ExceptionOrigin::unclear},
    TypeOrigin{"DistributedOperationException", ExceptionOrigin::unclear},  // of all of them
    TypeOrigin{"KeyboardInterrupt", ExceptionOrigin::interrupt},
    TypeOrigin{"SIGTERMException", ExceptionOrigin::stop},
    TypeOrigin{"RankShouldRestart", ExceptionOrigin::stop},
    TypeOrigin{"HostsUpdatedInterrupt", ExceptionOrigin::stop},
    TypeOrigin{"SystemExit", ExceptionOrigin::stop},
    TypeOrigin{"SignalException", ExceptionOrigin::stop},
    TypeOrigin{"ChildFailedError", ExceptionOrigin::launcher},
    TypeOrigin{"ProcessExitedException", ExceptionOrigin::launcher},
    TypeOrigin{"ProcessRaisedException", ExceptionOrigin::launcher},
    TypeOrigin{"CheckpointException", ExceptionOrigin::launcher},  // whose follows below it
    TypeOrigin{"CalledProcessError", ExceptionOrigin::launcher},
};

struct WordOrigin {
  std::string_view word;  // lower case
  ExceptionOrigin origin;
};

constexpr std::array kWords = {
    // First, whatever the type: peers cannot have caused these.
    WordOrigin{"address already in use", ExceptionOrigin::own},
    WordOrigin{"dataloader timed out", ExceptionOrigin::own},
    WordOrigin{"in dataloader worker process", ExceptionOrigin::own},  // which has no peers
    WordOrigin{"in local grad norm", ExceptionOrigin::own},  // Megatron's, before it communicates
    WordOrigin{"unable to find address for", ExceptionOrigin::own},  // of its own device
    WordOrigin{"httpsconnectionpool", ExceptionOrigin::own},
    WordOrigin{"pt_devmem allocation failed", ExceptionOrigin::own},  // of an HPU's memory
    WordOrigin{"the launch timed out and was terminated",
               ExceptionOrigin::own},  // its GPU's kernel
    WordOrigin{"gloo", ExceptionOrigin::communication},
    WordOrigin{"nccl", ExceptionOrigin::communication},
    WordOrigin{"connection", ExceptionOrigin::communication},
    WordOrigin{"timed out", ExceptionOrigin::communication},
    WordOrigin{"timeout", ExceptionOrigin::communication},
    WordOrigin{"broken pipe", ExceptionOrigin::communication},
    WordOrigin{"socket", ExceptionOrigin::communication},
    WordOrigin{"monitoredbarrier", ExceptionOrigin::communication},
    WordOrigin{"peer", ExceptionOrigin::unclear},
    WordOrigin{"httpconnectionpool", ExceptionOrigin::unclear},  // a server that may be of the job
    WordOrigin{"horovod detected", ExceptionOrigin::launcher},
    WordOrigin{"in process", ExceptionOrigin::unclear},  // DDP's ranks, whose models differ
    WordOrigin{"rank", ExceptionOrigin::unclear},
    WordOrigin{"collective", ExceptionOrigin::unclear},
    WordOrigin{"process group", ExceptionOrigin::unclear},
    WordOrigin{"processgroup", ExceptionOrigin::unclear},
    WordOrigin{"distributed", ExceptionOrigin::unclear},
    WordOrigin{"remote", ExceptionOrigin::unclear},
    WordOrigin{"barrier", ExceptionOrigin::unclear},
    WordOrigin{"ucc", ExceptionOrigin::unclear},
    WordOrigin{"mpi", ExceptionOrigin::unclear},
    WordOrigin{"nvlink", ExceptionOrigin::unclear},
    WordOrigin{"ucx", ExceptionOrigin::unclear},
    WordOrigin{"hccl", ExceptionOrigin::unclear},
    WordOrigin{"rccl", ExceptionOrigin::unclear},
    WordOrigin{"xccl", ExceptionOrigin::unclear},
    WordOrigin{"cncl", ExceptionOrigin::unclear},
    WordOrigin{"mccl", ExceptionOrigin::unclear},
    WordOrigin{"bkcl", ExceptionOrigin::unclear},
    WordOrigin{"oneccl", ExceptionOrigin::unclear},
    WordOrigin{"torchcomm", ExceptionOrigin::unclear},
    WordOrigin{"comm aborted", ExceptionOrigin::unclear},
    WordOrigin{"loss scale", ExceptionOrigin::unclear},  // of what all ranks' gradients hold
    // An NPU's stream does not end where a peer does not come to HCCL's operation in it.
    WordOrigin{"acl stream synchronize", ExceptionOrigin::unclear},
    WordOrigin{"aclrtsynchronize", ExceptionOrigin::unclear},
    // Of processes that the rank started, which say themselves why they ended.
    WordOrigin{"engine core", ExceptionOrigin::unclear},
    WordOrigin{"worker failed", ExceptionOrigin::unclear},
    // Told to stop, by whom nobody says.
    WordOrigin{"sigterm", ExceptionOrigin::unclear},
    WordOrigin{"sigusr", ExceptionOrigin::unclear},
    WordOrigin{"signal 15", ExceptionOrigin::unclear},
    WordOrigin{"preempt", ExceptionOrigin::unclear},
    // What a process that ends, for whatever reason, says of its GPU.
    WordOrigin{"driver shutting down", ExceptionOrigin::unclear},
    WordOrigin{"context is destroyed", ExceptionOrigin::unclear},
    // Of a size that a peer sent, or did not.
    WordOrigin{"more than 1eb memory", ExceptionOrigin::unclear},
    // The way to another host, or whoever is there.
    WordOrigin{"connect", ExceptionOrigin::unclear},
    WordOrigin{"no route to host", ExceptionOrigin::unclear},
    WordOrigin{"is unreachable", ExceptionOrigin::unclear},
    WordOrigin{"name or service not known", ExceptionOrigin::unclear},
    WordOrigin{"name resolution", ExceptionOrigin::unclear},
    WordOrigin{"heartbeat", ExceptionOrigin::unclear},
    WordOrigin{"coordinator", ExceptionOrigin::unclear},
    // Programs' own words for what became of others.
    WordOrigin{"other process", ExceptionOrigin::unclear},
    WordOrigin{"other worker", ExceptionOrigin::unclear},
    WordOrigin{"other node", ExceptionOrigin::unclear},
    WordOrigin{"other task", ExceptionOrigin::unclear},
    WordOrigin{"node failed", ExceptionOrigin::unclear},
    WordOrigin{"node died", ExceptionOrigin::unclear},
    WordOrigin{"by node", ExceptionOrigin::unclear},
    WordOrigin{"worker crashed", ExceptionOrigin::unclear},
    WordOrigin{"worker died", ExceptionOrigin::unclear},
    WordOrigin{"workers died", ExceptionOrigin::unclear},
    WordOrigin{"child died", ExceptionOrigin::unclear},
};

// In the name of a type that no row has, whatever its library: of what others answer, or do not.
constexpr std::array<std::string_view, 10> kTypesOfOthers = {
    "Connect",  "Disconnect",     "Timeout",    "RPC",        "Rpc",
    "gaierror", "IncompleteRead", "Communicat", "Rendezvous", "RankMonitor"};

// What PyTorch raises of C++. In a message of another type, as of a KeyError: 'timeout', or of a
// server that did not answer, the words of communication need not be of peers.
constexpr std::array<std::string_view, 6> kOfPyTorch = {"RuntimeError", "c10",   "gloo",
                                                        "std",          "Error", "Exception"};

// A worker of the DataLoader, which whoever ends the job ends, too.
constexpr std::string_view kEndedWorker = "is killed by signal: terminated";

// Of NCCL, but not for sure of a peer: the rank's own GPU or call.
constexpr std::array<std::string_view, 2> kOwnSide = {"unhandled cuda error", "invalid usage"};

bool is_type_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

std::string_view type_of(std::string_view line) {
  const auto end = std::find_if_not(line.begin(), line.end(), is_type_character);
  return line.substr(0, static_cast<size_t>(end - line.begin()));
}

std::string lower(std::string_view text) {
  std::string low(text);
  for (char& c : low) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return low;
}

// Whole words: "mpi" is not in "compile". A word of several letters may go on ("ranks").
bool has_word(const std::string& text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const bool begins = at == 0 || std::isalpha(static_cast<unsigned char>(text[at - 1])) == 0;
    if (begins || word.size() > 4) return true;
  }
  return false;
}

// A NaN of one rank is every rank's after the next all-reduce, and who checks first, or is the only
// one to check, need not be whose it was.
bool tells_of_no_number(const std::string& low) {
  constexpr std::array<std::string_view, 8> kNoNumbers = {
      "nan", "nans", "inf", "infs", "infinite", "infinity", "non-finite", "not finite"};
  const auto is_letter = [&](size_t at) {
    return at < low.size() && (std::isalpha(static_cast<unsigned char>(low[at])) != 0);
  };
  return std::any_of(kNoNumbers.begin(), kNoNumbers.end(), [&](std::string_view word) {
    for (size_t at = low.find(word); at != std::string::npos; at = low.find(word, at + 1))
      if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) return true;
    return false;
  });
}

bool names_others(std::string_view type) {
  return std::any_of(kTypesOfOthers.begin(), kTypesOfOthers.end(), [&](std::string_view part) {
    return type.find(part) != std::string_view::npos;
  });
}

}  // namespace

bool is_exception(std::string_view line) {
  const std::string_view type = type_of(line);
  if (type.empty() || std::isalpha(static_cast<unsigned char>(type[0])) == 0 || type.back() == '.')
    return false;
  return type.size() == line.size() || line[type.size()] == ':';
}

ExceptionOrigin origin_of_exception(std::string_view line, bool in_distributed) {
  std::string_view type = type_of(line);
  std::string_view message = line.substr(type.size());
  // Ray raises in one process what became of another.
  if (type.starts_with("ray.exceptions.")) return ExceptionOrigin::unclear;
  // requests.exceptions.ConnectionError, and others of the kind, are of servers.
  bool of_servers = false;
  if (const size_t dot = type.rfind('.'); dot != std::string_view::npos) {
    of_servers = !type.starts_with("torch") && !type.starts_with("horovod");
    type.remove_prefix(dot + 1);
  }
  const std::string low = lower(message);
  if (has_word(low, kEndedWorker)) return ExceptionOrigin::stop;
  for (const WordOrigin& row : kWords)
    if (row.origin == ExceptionOrigin::own && has_word(low, row.word)) return row.origin;
  for (const std::string_view words : kOwnSide)
    if (has_word(low, words)) return ExceptionOrigin::unclear;
  for (const TypeOrigin& row : kTypes)
    if (row.type == type)
      return of_servers && row.origin == ExceptionOrigin::communication ? ExceptionOrigin::unclear
                                                                        : row.origin;
  if (tells_of_no_number(low) || names_others(type)) return ExceptionOrigin::unclear;
  const bool is_pytorch = std::find(kOfPyTorch.begin(), kOfPyTorch.end(), type) != kOfPyTorch.end();
  auto found = ExceptionOrigin::own;
  for (const WordOrigin& row : kWords) {
    if (row.origin == ExceptionOrigin::own || !has_word(low, row.word)) continue;
    if (row.origin != ExceptionOrigin::communication)
      found = row.origin;
    else if (is_pytorch)
      return row.origin;
    else
      found = ExceptionOrigin::unclear;
  }
  return in_distributed ? ExceptionOrigin::unclear : found;
}

}  // namespace lockstep
