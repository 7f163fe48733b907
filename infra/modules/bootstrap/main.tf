# What must be there before an image can be published: APIs, the registry, the bucket, the bucket of Terraform's state.

locals {
  apis = toset([
    "artifactregistry.googleapis.com",
    "billingbudgets.googleapis.com",
    # Without it the provider is not told the project's billing account, and makes no budget.
    "cloudbilling.googleapis.com",
    # `gcloud beta quotas`, of which `rekindle doctor` asks.
    "cloudquotas.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "cloudscheduler.googleapis.com",
    "cloudtasks.googleapis.com",
    "compute.googleapis.com",
    "eventarc.googleapis.com",
    "firestore.googleapis.com",
    "iam.googleapis.com",
    # Tokens of the services' accounts, as which `rekindle doctor` asks what they may do.
    "iamcredentials.googleapis.com",
    "iap.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "pubsub.googleapis.com",
    "run.googleapis.com",
    "secretmanager.googleapis.com",
    "serviceusage.googleapis.com",
    "storage.googleapis.com",
    "tpu.googleapis.com",
  ])

  # Two regions make a dual-region bucket, which is named after its continent.
  continents = { us = "US", northamerica = "US", europe = "EU", asia = "ASIA" }
  is_dual    = length(var.bucket_locations) == 2
  location   = local.is_dual ? local.continents[split("-", var.bucket_locations[0])[0]] : upper(var.bucket_locations[0])
}

resource "google_project_service" "api" {
  for_each = local.apis

  project = var.project
  service = each.value
  # Others in the project may use them too.
  disable_on_destroy = false
}

resource "google_artifact_registry_repository" "images" {
  # checkov:skip=CKV_GCP_84:The image holds no secret and is public code; Google's own key is enough, and a KMS key would cost more than an idle month.
  project       = var.project
  location      = var.region
  repository_id = "rekindle"
  description   = "Images of Rekindle's services."
  format        = "DOCKER"

  # Roll back needs the images before the present one.
  cleanup_policies {
    id     = "keep-recent"
    action = "KEEP"
    most_recent_versions {
      keep_count = 10
    }
  }
  cleanup_policies {
    id     = "delete-untagged"
    action = "DELETE"
    condition {
      tag_state  = "UNTAGGED"
      older_than = "2592000s"
    }
  }

  depends_on = [google_project_service.api]
}

# Checkpoints, logs, bundles, agents.
resource "google_storage_bucket" "data" {
  # checkov:skip=CKV_GCP_78:Programs delete old checkpoints all the time; each version kept would be paid for. A checkpoint is never overwritten in place.
  # checkov:skip=CKV_GCP_62:Who reads and writes is told by Cloud Audit Logs' data access entries where a project turns them on; access logs would be written and paid for at each chunk.
  project                     = var.project
  name                        = "${var.project}-rekindle"
  location                    = local.location
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  dynamic "custom_placement_config" {
    for_each = local.is_dual ? [1] : []
    content {
      data_locations = [for l in var.bucket_locations : upper(l)]
    }
  }

  # As versions: deleted checkpoints would be paid for seven days more.
  soft_delete_policy {
    retention_duration_seconds = 0
  }

  # None for `bundles/`: every attempt of a job runs the same bytes, however old the bundle was when it was submitted.

  # Parts of uploads that a preempted worker never ended.
  lifecycle_rule {
    action {
      type = "AbortIncompleteMultipartUpload"
    }
    condition {
      age = 7
    }
  }

  lifecycle {
    precondition {
      condition = anytrue([for zone in var.zones : anytrue([
        for l in var.bucket_locations : startswith(zone, "${lookup({ us = "us", eu = "europe", asia = "asia" }, lower(l), lower(l))}-")
      ])])
      error_message = "No zone of capacity lies in bucket_locations: no TPU could ever be taken, and the bucket cannot be moved later."
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_storage_bucket" "state" {
  # checkov:skip=CKV_GCP_62:Only the people who apply read it; Cloud Audit Logs tell who did.
  project                     = var.project
  name                        = "${var.project}-rekindle-state"
  location                    = upper(var.region)
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  versioning {
    enabled = true
  }

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      num_newer_versions = 30
      with_state         = "ARCHIVED"
    }
  }

  depends_on = [google_project_service.api]
}
