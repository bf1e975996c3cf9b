import { Button, Tabs } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { EntityList } from '../../components/entities/EntityList';
import { PageTitle } from '../../components/PageTitle';
import { meQuery, useIsReadOnly } from '../../data/accounts/me';
import { storesQuery } from '../../data/serving/models';
import { ImportModel } from './ImportModel';
import { IMPORTS } from './imports';
import { ModelDrawer } from './ModelDrawer';
import { ModelGallery } from './ModelGallery';
import { PublishModel } from './PublishModel';
import { readModelsSearch } from './search';

const route = getRouteApi('/models');

/** The models of model stores, and imports of models. */
export function ModelsPage() {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const isReadOnly = useIsReadOnly();
  const { data: stores } = useQuery(storesQuery);
  const change = (changes: Record<string, unknown>) =>
    void navigate({ search: old => readModelsSearch({ ...old, ...changes }) });
  // Discard the filters and the order, which are different for the two lists.
  const changeTab = (tab: string) => void navigate({ search: readModelsSearch({ tab }) });
  // Only administrators may create folders of a project, and so models.
  const { data: me } = useQuery(meQuery);
  const isAdmin = me?.role === 'admin' || me?.role === 'superadmin';
  const hasStore = (stores?.length ?? 0) > 0;
  const publishButton = isAdmin && hasStore && (
    <Button onClick={() => change({ form: 'publish' })}>{t('model-publication.title')}</Button>
  );
  const importButton = isReadOnly === false && hasStore && (
    <Button onClick={() => change({ form: 'import' })}>{t('models.import')}</Button>
  );
  return (
    <>
      <PageTitle>{t('pages.models')}</PageTitle>
      <Tabs
        activeKey={search.tab ?? 'models'}
        onChange={changeTab}
        destroyOnHidden
        items={[
          {
            key: 'models',
            label: t('pages.models'),
            children: (
              <ModelGallery
                search={search}
                onChange={change}
                stores={stores}
                tools={
                  <>
                    {publishButton}
                    {importButton}
                  </>
                }
              />
            )
          },
          {
            key: 'imports',
            label: t('model-imports.title'),
            children: (
              <EntityList
                entity={IMPORTS}
                search={search}
                onSearch={changes => change({ ...changes })}
                tools={importButton}
              />
            )
          }
        ]}
      />
      <ModelDrawer search={search} onChange={change} />
      {search.form === 'publish' && isAdmin && stores && (
        <PublishModel
          stores={stores}
          onClose={() => change({ form: undefined })}
          onDone={item => change({ form: undefined, item })}
        />
      )}
      {search.form === 'import' && isReadOnly === false && stores && (
        <ImportModel
          stores={stores}
          onClose={() => change({ form: undefined })}
          onDone={() => changeTab('imports')}
        />
      )}
    </>
  );
}
