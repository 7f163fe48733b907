output "registry" {
  description = "Where images go."
  value       = module.bootstrap.registry
}

output "bucket" {
  description = "The bucket for checkpoints, logs, bundles and agents."
  value       = module.bootstrap.bucket
}

output "state_bucket" {
  description = "The bucket for Terraform's state."
  value       = module.bootstrap.state_bucket
}
