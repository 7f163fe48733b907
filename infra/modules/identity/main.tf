# Accounts and custom roles. Who may do what is in edges.tf.

locals {
  accounts = {
    api       = "Service api: people and agents."
    events    = "Service events: job messages, events of TPUs, our own events."
    reconcile = "Service reconcile: the only one that may touch TPUs."
    push      = "Pub/Sub calls services as this account."
    eventarc  = "Eventarc calls services as this account."
    tasks     = "Cloud Tasks calls services as this account."
    scheduler = "Cloud Scheduler calls services as this account."
    worker    = "TPU workers run as this account."
  }
}

resource "google_service_account" "account" {
  for_each = local.accounts

  project      = var.project
  account_id   = "rekindle-${each.key}"
  display_name = "Rekindle ${each.key}"
  description  = each.value
}

# What the document store sends: Commit, RunQuery, BatchGetDocuments.
resource "google_project_iam_custom_role" "documents" {
  project     = var.project
  role_id     = "rekindleDocuments"
  title       = "Rekindle documents"
  description = "Read and write documents; no indexes, no backups, no databases."
  permissions = [
    "datastore.databases.get",
    "datastore.entities.create",
    "datastore.entities.delete",
    "datastore.entities.get",
    "datastore.entities.list",
    "datastore.entities.update",
  ]
}

# What the TPU adapter sends. Queued resources have no permissions of their own: they are covered by those of nodes.
resource "google_project_iam_custom_role" "tpu" {
  project     = var.project
  role_id     = "rekindleTpu"
  title       = "Rekindle TPUs"
  description = "Make, see and delete nodes and queued resources."
  permissions = [
    "tpu.nodes.create",
    "tpu.nodes.delete",
    "tpu.nodes.get",
    "tpu.nodes.list",
    "tpu.operations.get",
  ]
}

# Chunks of logs and bundles are written once: `api` can change or delete none (but outputs: `replace`).
resource "google_project_iam_custom_role" "objects" {
  project     = var.project
  role_id     = "rekindleObjects"
  title       = "Rekindle objects"
  description = "Read objects and write new ones."
  permissions = [
    "storage.objects.create",
    "storage.objects.get",
    "storage.objects.list",
  ]
}

# A write in the place of an object that is there takes the right to delete it: the last attempt's outputs stand in the place of an earlier one's.
resource "google_project_iam_custom_role" "replace" {
  project     = var.project
  role_id     = "rekindleReplace"
  title       = "Rekindle replaces"
  description = "Write in the place of an object that is there."
  permissions = ["storage.objects.delete"]
}

# What is not there is told as 404 only to those who may list, and a read carries no prefix by which a condition could know it. Orbax looks at the
# bucket before it saves.
resource "google_project_iam_custom_role" "bucket" {
  project     = var.project
  role_id     = "rekindleBucket"
  title       = "Rekindle bucket"
  description = "Look at the bucket, and at the names in it."
  permissions = [
    "storage.buckets.get",
    "storage.objects.list",
  ]
}

# Programs write, rename and delete checkpoints.
resource "google_project_iam_custom_role" "checkpoints" {
  project     = var.project
  role_id     = "rekindleCheckpoints"
  title       = "Rekindle checkpoints"
  description = "Read, write and delete objects."
  permissions = [
    "storage.multipartUploads.abort",
    "storage.multipartUploads.create",
    "storage.multipartUploads.listParts",
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.get",
    "storage.objects.list",
  ]
}

resource "google_project_iam_custom_role" "artefacts" {
  project     = var.project
  role_id     = "rekindleArtefacts"
  title       = "Rekindle artefacts"
  description = "Read an object whose name is known."
  permissions = ["storage.objects.get"]
}
