#include <memory>

#include "sim/cli/app_options.h"
#include "sim/cli/range.h"
#include "sim/cli/worker_options.h"

namespace lockstep {
namespace {

void add_place(CLI::App* worker, const std::shared_ptr<WorkerOptions>& options) {
  const char* group = "Which rank";
  worker->add_option("--launcher", options->launcher, "Whose environment variables count (auto)")
      ->option_text("NAME")
      ->check(CLI::IsMember({"auto", "torchrun", "mpi", "slurm", "none"}))
      ->group(group);
  const auto number = [&](const char* name, std::optional<int64_t>* value, int64_t least,
                          const char* what) {
    worker->add_option(name, *value, what)
        ->option_text("N")
        ->check(between(least, int64_t{4096}))
        ->group(group);
  };
  number("--nodes", &options->nodes, 1, "Nodes, with one process like this one on each");
  number("--node-rank", &options->node_rank, 0, "Which of them this is (SLURM_NODEID)");
  number("--ranks-per-node", &options->ranks_per_node, 1, "Ranks that this process starts (1)");
  worker
      ->add_option("--rendezvous", options->rendezvous,
                   "Where rank 0 is found: env://, tcp://H:P, file:///PATH, redis://H:P[/KEY]")
      ->option_text("URL")
      ->group(group);
  worker->add_option("--master-addr", options->master_addr, "Host of rank 0 (MASTER_ADDR)")
      ->option_text("HOST")
      ->group(group);
  worker->add_option("--master-port", options->master_port, "Port that it opens (MASTER_PORT)")
      ->option_text("PORT")
      ->check(between(int64_t{1}, int64_t{65535}))
      ->group(group);
  worker
      ->add_option("--interface", options->interface,
                   "Network interface of the ranks (GLOO_SOCKET_IFNAME)")
      ->option_text("NAME")
      ->group(group);
  worker
      ->add_option("--job-key-file", options->job_key_file,
                   "Secret of the job's processes, - for standard input (LOCKSTEP_JOB_KEY_FILE, "
                   "LOCKSTEP_JOB_KEY)")
      ->option_text("FILE")
      ->group(group);
}

}  // namespace

void add_worker(CLI::App& app, std::function<int()>* action) {
  CLI::App* worker = app.add_subcommand(
      "worker", "Be one rank, or the ranks of one node, under torchrun, srun or mpirun.");
  auto options = std::make_shared<WorkerOptions>();
  add_selection(worker, &options->verify.selection, true);
  add_place(worker, options);
  add_output(worker, &options->verify);
  worker->footer(footer(R"(  mpirun -np 3 lockstep worker scenarios/equivalence/toy_model.json
  torchrun --nproc_per_node 4 --no-python lockstep worker scenarios/equivalence/toy_model.json
  lockstep worker scenarios/equivalence/toy_model.json --nodes 2 --node-rank 0 \
    --ranks-per-node 2 --master-addr node1 --master-port 29500
)"));
  worker->callback([=] { *action = [=] { return join_as_worker(*options); }; });
}

}  // namespace lockstep
