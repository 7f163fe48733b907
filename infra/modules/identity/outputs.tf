output "emails" {
  description = "Addresses of the accounts: api, events, reconcile, push, eventarc, tasks, scheduler, worker."
  value       = { for name, a in google_service_account.account : name => a.email }
}

output "documents_ready" {
  description = "Once this is known, the services may read the store: they do so before they serve."
  value       = [for edge in google_project_iam_member.documents : edge.id]
}

output "eventarc_ready" {
  description = "Once this is known, triggers can be made."
  value       = google_project_iam_member.eventarc.id
}
