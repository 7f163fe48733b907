output "registry" {
  description = "Where images go: LOCATION-docker.pkg.dev/PROJECT/REPOSITORY."
  value       = "${google_artifact_registry_repository.images.location}-docker.pkg.dev/${var.project}/${google_artifact_registry_repository.images.repository_id}"
}

output "bucket" {
  description = "Name of the bucket for checkpoints, logs, bundles and agents."
  value       = google_storage_bucket.data.name
}

output "state_bucket" {
  description = "Name of the bucket for Terraform's state."
  value       = google_storage_bucket.state.name
}
