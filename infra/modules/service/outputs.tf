output "urls" {
  description = "Root addresses of the services, which are the audiences of tokens: api, events, reconcile."
  value       = local.urls
}

output "names" {
  description = "Names of the services: api, events, reconcile."
  value       = { for name, s in google_cloud_run_v2_service.service : name => s.name }
}
