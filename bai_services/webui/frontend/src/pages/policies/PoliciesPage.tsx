import { EntityPage } from '../../components/entities/EntityPage';
import { POLICIES } from './policies';

/** Resource policies of keypairs, users and projects. */
export function PoliciesPage() {
  return <EntityPage path="/policies" title="pages.policies" entities={POLICIES} />;
}
