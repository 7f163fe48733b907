output "server" {
  description = "Address for REKINDLE_SERVER."
  value       = module.service.urls["api"]
}

output "region" {
  description = "Region of the services, for `rekindle doctor`."
  value       = var.region
}

output "network" {
  description = "What a job names as `network` and `subnetwork`."
  value       = module.network.network
}

output "dashboard" {
  description = "The dashboard."
  value       = "https://console.cloud.google.com/monitoring/dashboards?project=${var.project}#${module.observability.dashboard}"
}
