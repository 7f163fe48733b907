output "database" {
  description = "Name of the database."
  value       = google_firestore_database.documents.name
}
