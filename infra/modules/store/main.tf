# The document store. Indexes, time-to-live and exemptions come from one file, which a test compares with the queries that are sent.

locals {
  file    = jsondecode(file(var.indexes_file))
  indexes = { for i in local.file.indexes : join("-", concat([i.collectionGroup], [for f in i.fields : f.fieldPath])) => i }
  fields  = { for f in local.file.fieldOverrides : "${f.collectionGroup}-${f.fieldPath}" => f }
}

resource "google_firestore_database" "documents" {
  project     = var.project
  name        = var.database
  location_id = var.location
  type        = "FIRESTORE_NATIVE"
  # Commits carry their own preconditions; no read-write transaction is ever used.
  concurrency_mode = "OPTIMISTIC"
  # The store is what tells ours from leaks: without it nothing is swept.
  delete_protection_state           = "DELETE_PROTECTION_ENABLED"
  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_ENABLED"
  deletion_policy                   = "ABANDON"
}

resource "google_firestore_index" "query" {
  for_each = local.indexes

  project     = var.project
  database    = google_firestore_database.documents.name
  collection  = each.value.collectionGroup
  query_scope = each.value.queryScope

  dynamic "fields" {
    for_each = each.value.fields
    content {
      field_path   = fields.value.fieldPath
      order        = lookup(fields.value, "order", null)
      array_config = lookup(fields.value, "arrayConfig", null)
    }
  }
}

resource "google_firestore_field" "field" {
  for_each = local.fields

  project    = var.project
  database   = google_firestore_database.documents.name
  collection = each.value.collectionGroup
  field      = each.value.fieldPath

  # Without blocks inside: no index at all.
  index_config {
    dynamic "indexes" {
      for_each = each.value.indexes
      content {
        order       = indexes.value.order
        query_scope = indexes.value.queryScope
      }
    }
  }

  dynamic "ttl_config" {
    for_each = lookup(each.value, "ttl", false) ? [1] : []
    content {}
  }
}
