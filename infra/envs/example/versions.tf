terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 7.0"
    }
  }

  # The bucket comes from bootstrap: terraform init -backend-config="bucket=PROJECT-rekindle-state"
  backend "gcs" {
    prefix = "rekindle"
  }
}

provider "google" {
  project = var.project
  region  = var.region
  # Budgets belong to no project; their calls are counted against this one.
  user_project_override = true
  billing_project       = var.project
}
