output "network" {
  description = "Name of the network; jobs name it as `network`, and its subnets, which have the same name, as `subnetwork`."
  value       = google_compute_network.workers.name
}

output "services_subnetwork" {
  description = "The subnetwork from which reconcile rings workers."
  value       = google_compute_subnetwork.services.name
}
