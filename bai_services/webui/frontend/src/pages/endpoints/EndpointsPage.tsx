import { Button } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { EntityList } from '../../components/entities/EntityList';
import { NoProject } from '../../components/NoProject';
import { PageTitle } from '../../components/PageTitle';
import { useHasNoProject, useIsReadOnly } from '../../data/accounts/me';
import { endpointQuery } from '../../data/serving/endpoints';
import { EndpointDrawer } from './drawer/EndpointDrawer';
import { EndpointForm } from './EndpointForm';
import { ENDPOINTS } from './endpoints';
import { readEndpointsSearch } from './search';

const route = getRouteApi('/endpoints');

/** Endpoints of model serving. */
export function EndpointsPage() {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const hasNoProject = useHasNoProject();
  const isReadOnly = useIsReadOnly();
  const { data: opened } = useQuery({
    ...endpointQuery(search.item ?? ''),
    enabled: search.item !== undefined
  });
  const change = (changes: Record<string, unknown>) =>
    void navigate({ search: old => readEndpointsSearch({ ...old, ...changes }) });
  const closeForm = () => change({ form: undefined, base: undefined });
  const closeDrawer = () =>
    change({
      item: undefined,
      panel: undefined,
      list: undefined,
      before: undefined,
      after: undefined
    });
  return (
    <>
      <PageTitle>{t('pages.endpoints')}</PageTitle>
      {isReadOnly === false && hasNoProject && <NoProject />}
      <EntityList
        entity={ENDPOINTS}
        search={search}
        onSearch={changes => change({ ...changes })}
        toolbar={
          !hasNoProject && (
            <Button type="primary" onClick={() => change({ form: 'new' })}>
              {t('endpoints.create')}
            </Button>
          )
        }
      />
      <EndpointDrawer search={search} onChange={change} onClose={closeDrawer} />
      {search.form === 'new' && isReadOnly === false && (
        <EndpointForm
          onClose={closeForm}
          onDone={({ id }) => change({ form: undefined, item: id })}
        />
      )}
      {search.form === 'revision' && opened && opened.id === search.item && (
        <EndpointForm
          key={`${opened.id} ${search.base}`}
          endpoint={opened}
          base={search.base ?? opened.target_revision}
          onClose={closeForm}
          onDone={() => change({ form: undefined, base: undefined, panel: 'revisions' })}
        />
      )}
    </>
  );
}
